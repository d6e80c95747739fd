-- store::lease::release
update session_run set op = op + 1, written_by = null, owner = null, lease_until = '-infinity'
 where tenant_id = :tenant and session_id = :session and epoch = :epoch and turn_id = :turn and owner = :owner and state = 1 returning 1
