-- store::commit::unlist: deleted sessions come after all others in the order of use
update session_activity a
   set updated_at = '-infinity'
 where a.tenant_id = :tenant and a.session_id = :session and {accepted}
