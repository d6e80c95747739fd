-- store::seen::session: what a change is decided by
select {session_columns}, now() as now
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session
