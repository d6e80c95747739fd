-- store::compaction::begin: after lock_run and fail_expired. 0 rows: another one runs, the context is not the one that was seen,
-- or the request is known; outcome tells.
with f as (
  update session_run r
     set next_seq = r.next_seq + 1
   where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3 and r.context_version = :seen
     and not exists (select from compactions c where c.tenant_id = :tenant and c.session_id = :session and c.status = 1)
     and {request_is_new}
  returning r.epoch, r.next_seq, case when r.state in (1, 2) then r.turn_id end as turn_id, r.context_version),
write_compaction as (
  insert into compactions (tenant_id, session_id, compaction_id, status, lease_until, context_version, begun_at_seq, info)
  select :tenant, :session, :compaction, 1, now() + make_interval(secs => :lease), f.context_version, f.next_seq - 1, :info::bytea from f),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select :tenant, :session, :request_id, :request_hash, :compaction from f where :request_id::text is not null),
write_event as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
  select :tenant, :session, f.next_seq - 1, f.epoch, f.turn_id, 0, 0, 'compaction_started', array[:compaction], :payload::bytea from f)
select f.context_version, f.next_seq from f
