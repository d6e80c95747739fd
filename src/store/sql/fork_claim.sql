-- store::fork::claim_fork: takes the id of a fork that is copied in batches. 0 rows: there is no such source, a session
-- has the id, or had it a moment ago, or the tenant is no more.
with source as (
  select 1 from session_run r join sessions s on s.tenant_id = :tenant and s.session_id = :session
   where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3 and r.next_seq > :at and s.created_at = :source_created
     and {tenant_lives}),
f as (
  insert into session_run (tenant_id, session_id, state, turn_id, lease_until, epoch)
  select :tenant, :new_session, 3, :claim, clock_timestamp() + make_interval(secs => :lease),
         coalesce((select i.result::bigint from idempotency i
                    where i.tenant_id = :tenant and i.session_id = :new_session and i.request_id = ''), 0)
    from source on conflict do nothing returning 1),
unlisted as (
  insert into session_activity (tenant_id, session_id, updated_at) select :tenant, :new_session, '-infinity' from f),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select :tenant, :new_session, :request_id, :request_hash, :new_session from f where :request_id::text is not null)
select 1 from f
