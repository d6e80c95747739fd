-- store::queue::interrupt: a message that was just queued cancels the live turn, after lock_run. A live owner gets the flag; where
-- the turn has no owner this replica becomes its owner in the same statement and ends it. A request that is repeated has queued
-- nothing under the id that it made up, and cancels nothing.
update session_run r
   set cancel = greatest(r.cancel, :mode::smallint), cancel_cause = case when r.cancel = 0 then :cause::smallint else r.cancel_cause end,
       cancel_reason = case when r.cancel = 0 then :reason else r.cancel_reason end,
       epoch = r.epoch + case when {ownerless} then 1 else 0 end,
       owner = case when {ownerless} then :owner else r.owner end,
       lease_until = case when {ownerless} then now() + make_interval(secs => :lease) else r.lease_until end,
       state = 1
 where r.tenant_id = :tenant and r.session_id = :session and r.state in (1, 2)
   and exists (select from queue q
                where q.tenant_id = :tenant and q.session_id = :session and q.message_id = :message and q.status = 0)
returning r.epoch, r.op, r.turn_id, r.owner
