-- store::admission::new_session: where the session exists, a deleted one has its id, or the tenant is no more, it writes nothing, and
-- neither does what follows
insert into sessions (tenant_id, session_id)
select :tenant, :session
 where {tenant_lives} and not exists (select from session_run r where r.tenant_id = :tenant and r.session_id = :session)
on conflict do nothing
returning {accept}
