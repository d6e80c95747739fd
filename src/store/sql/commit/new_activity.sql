-- store::commit::new_activity: a fork that is still being copied comes after all others in the order of use
insert into session_activity (tenant_id, session_id, updated_at, ttl)
select :tenant, :session, case when :is_hidden::boolean then '-infinity' else now() end, make_interval(secs => :expires_after::float8)
 where {accepted}
