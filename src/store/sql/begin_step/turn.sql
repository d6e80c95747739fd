-- store::step::step_count
update turns t
   set step_count = r.step - 1
  from session_run r
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = r.turn_id and r.tenant_id = :tenant and r.session_id = :session and {accepted}
