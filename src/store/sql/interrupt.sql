-- store::queue::interrupt: a message that was just queued cancels the live turn, after lock_run. A live owner gets the flag; where
-- the turn has no owner this replica becomes its owner in the same statement and ends it. A request that is repeated has queued
-- nothing under the id that it made up, and cancels nothing.
-- $3 message $4 replica $5 lease (s)
update session_run r
   set cancel = greatest(r.cancel, 1::smallint), cancel_cause = case when r.cancel = 0 then 2::smallint else r.cancel_cause end,
       cancel_reason = case when r.cancel = 0 then '' else r.cancel_reason end,
       epoch = r.epoch + case when r.state = 2 or r.lease_until < now() then 1 else 0 end,
       owner = case when r.state = 2 or r.lease_until < now() then $4 else r.owner end,
       lease_until = case when r.state = 2 or r.lease_until < now() then now() + make_interval(secs => $5) else r.lease_until end,
       state = 1
 where r.tenant_id = $1 and r.session_id = $2 and r.state in (1, 2)
   and exists (select from queue q where q.tenant_id = $1 and q.session_id = $2 and q.message_id = $3 and q.status = 0)
returning r.epoch, r.op, r.turn_id, r.owner
