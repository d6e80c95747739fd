-- store::commit::gone
delete from sessions s
 where s.tenant_id = :tenant and s.session_id = :session and {accepted}
