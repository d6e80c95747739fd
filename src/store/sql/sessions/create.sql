-- store::session::create_session: nothing where the session exists, or the tenant is no more
with s as (insert into sessions (tenant_id, session_id) select :tenant, :session
       where {tenant_lives} and not exists (select from session_run r where r.tenant_id = :tenant and r.session_id = :session)
      on conflict do nothing returning 1),
r as (insert into session_run (tenant_id, session_id, revision, epoch)
      select :tenant, :session, :revision, coalesce((select i.result::bigint from idempotency i
                                    where i.tenant_id = :tenant and i.session_id = :session and i.request_id = ''), 0) from s),
c as (insert into session_context (tenant_id, session_id) select :tenant, :session from s),
a as (insert into session_activity (tenant_id, session_id, ttl) select :tenant, :session, make_interval(secs => :ttl) from s),
t as (insert into toolsets (tenant_id, toolset_id, tools, tokens, estimator)
      select :tenant, :toolset, :tools::bytea, :tools_tokens::int, :estimator from s on conflict do nothing),
v as (insert into session_revisions (tenant_id, session_id, revision, toolset_id, config, labels, title)
      select :tenant, :session, :revision, :toolset, :config::bytea, :labels::bytea[], :title::text from s),
i as (insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
      select :tenant, :session, :request_id, :request_hash, :session from s where :request_id::text is not null)
select 1 from s
