-- store::turn::stop_calls: after all that counts them
update tool_calls c
   set status = 6, closed_at = now()
 where c.tenant_id = :tenant and c.session_id = :session and {accepted} and c.turn_id = :turn and c.status < 3
