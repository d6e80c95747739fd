-- store::lease::adopt_owned: under another epoch, so that statements that are still under way change nothing
update session_run set epoch = epoch + 1, lease_until = now() + make_interval(secs => :lease)
 where tenant_id = :tenant and session_id = :session and epoch = :epoch and turn_id = :turn and owner = :owner and state = 1
returning epoch, op, next_seq, turn_id
