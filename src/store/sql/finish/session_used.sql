-- store::turn::session_used
update session_activity a
   set updated_at = now()
  from session_run r
 where a.tenant_id = :tenant and a.session_id = :session and r.tenant_id = :tenant and r.session_id = :session and {accepted} and r.state = 0
