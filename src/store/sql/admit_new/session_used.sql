-- store::admission::session_used
insert into session_activity (tenant_id, session_id, ttl) select :tenant, :session, make_interval(secs => :ttl)
 where {accepted}
