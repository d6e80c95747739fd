-- store::commit::session_used
update session_activity a
   set updated_at = now()
 where a.tenant_id = :tenant and a.session_id = :session and {accepted}
