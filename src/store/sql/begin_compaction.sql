-- store::compaction::begin: after lock_run and fail_expired. 0 rows: another one runs, the context is not the one that was seen,
-- or the request is known; outcome tells.
-- $3 compaction $4 context version as seen $5 lease (s) $6 info $7 payload $8 request id or null $9 its hash
with f as (
  update session_run r
     set next_seq = r.next_seq + 1
   where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3 and r.context_version = $4
     and not exists (select from compactions c where c.tenant_id = $1 and c.session_id = $2 and c.status = 1)
     and ($8::text is null
          or not exists (select from idempotency i where i.tenant_id = $1 and i.session_id = $2 and i.request_id = $8))
  returning r.epoch, r.next_seq, case when r.state in (1, 2) then r.turn_id end as turn_id, r.context_version),
write_compaction as (
  insert into compactions (tenant_id, session_id, compaction_id, status, lease_until, context_version, begun_at_seq, info)
  select $1, $2, $3, 1, now() + make_interval(secs => $5), f.context_version, f.next_seq - 1, $6::bytea from f),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select $1, $2, $8, $9, $3 from f where $8::text is not null),
write_event as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
  select $1, $2, f.next_seq - 1, f.epoch, f.turn_id, 0, 0, 'compaction_started', array[$3], $7::bytea from f)
select f.context_version, f.next_seq from f
