from (select from sessions s where s.tenant_id = :tenant and s.session_id = :session for key share) gate
 -- The lock is held to the commit: whoever ends the turn waits for it, and sees the message.
 where :most_waiting::bigint > 0
   and not exists (select from queue q where q.tenant_id = :tenant and q.session_id = :session and q.status = 0
                   offset greatest(:most_waiting::bigint - 1, 0))
