-- store::turn::cancel: after lock_run. A live owner gets the flag; where nobody owns the turn the canceller becomes its owner in
-- the same statement and stops it. A request that is known changes nothing; a new one is remembered with the turn that it ended.
-- $3 turn or null (whichever is live) $4 mode $5 cause $6 words $7 replica $8 lease (s) $9 request id or null $10 its hash
with f as (
  update session_run r
     set cancel = greatest(r.cancel, $4::smallint), cancel_cause = case when r.cancel = 0 then $5::smallint else r.cancel_cause end,
         cancel_reason = case when r.cancel = 0 then $6 else r.cancel_reason end,
         epoch = r.epoch + case when r.state = 2 or r.lease_until < now() then 1 else 0 end,
         owner = case when r.state = 2 or r.lease_until < now() then $7 else r.owner end,
         lease_until = case when r.state = 2 or r.lease_until < now() then now() + make_interval(secs => $8) else r.lease_until end,
         state = 1
   where r.tenant_id = $1 and r.session_id = $2 and ($3::text is null or r.turn_id = $3) and r.state in (1, 2)
     and ($9::text is null or not exists (select from idempotency i where i.tenant_id = $1 and i.session_id = $2
                                             and i.request_id = $9))
  returning r.epoch, r.op, r.owner, r.turn_id),
remember as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select r.tenant_id, r.session_id, $9, $10, coalesce((select f.turn_id from f), $3, '') from session_run r
   where r.tenant_id = $1 and r.session_id = $2 and $9 is not null on conflict do nothing)
select f.epoch, f.op, f.turn_id, f.owner from f
