-- store::commit::session_used
update session_activity a
   set updated_at = now(), ttl = case when :configures::boolean then make_interval(secs => :expires_after::float8) else a.ttl end
 where a.tenant_id = :tenant and a.session_id = :session and {accepted}
