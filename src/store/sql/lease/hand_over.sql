-- store::lease::hand_over
update session_run set op = op + 1, written_by = null, owner = null, lease_until = '-infinity'
 where tenant_id = :tenant and session_id = :session and epoch = :epoch and op = :op and state = 1 and owner = :owner and turn_id = :turn returning 1
