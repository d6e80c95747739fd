-- store::admission::session_used
insert into session_activity (tenant_id, session_id, ttl) values (:tenant, :session, make_interval(secs => :ttl))
