-- store::lease::cancel: after lock_run. A live owner gets the flag; where the turn has no owner the canceller becomes its owner in
-- the same statement and stops it. A repeated request reaches the turn that it reached first, and no other.
-- $3 turn or null (whichever is live) $4 mode $5 cause $6 words $7 replica $8 lease (s) $9 request id or null $10 its hash
with known as (
  select i.req_hash, i.result from idempotency i where i.tenant_id = $1 and i.session_id = $2 and i.request_id = $9),
f as (
  update session_run r
     set cancel = greatest(r.cancel, $4::smallint), cancel_cause = case when r.cancel = 0 then $5::smallint else r.cancel_cause end,
         cancel_reason = case when r.cancel = 0 then $6 else r.cancel_reason end,
         epoch = r.epoch + case when r.state = 2 or r.lease_until < now() then 1 else 0 end,
         owner = case when r.state = 2 or r.lease_until < now() then $7 else r.owner end,
         lease_until = case when r.state = 2 or r.lease_until < now() then now() + make_interval(secs => $8) else r.lease_until end,
         state = 1
   where r.tenant_id = $1 and r.session_id = $2 and ($3::text is null or r.turn_id = $3) and r.state in (1, 2)
     and not exists (select from known k where k.req_hash <> $10 or k.result <> r.turn_id)
  returning r.epoch, r.op, r.owner, r.turn_id),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select $1, $2, $9, $10, coalesce((select f.turn_id from f), '') from session_run r
   where r.tenant_id = $1 and r.session_id = $2 and $9::text is not null
  on conflict do nothing)
select f.epoch, f.op, f.turn_id, f.owner from f
