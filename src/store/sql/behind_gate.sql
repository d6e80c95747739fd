  from (select from sessions s where s.tenant_id = $1 and s.session_id = $2 for key share) gate
 -- The lock is held to the commit: whoever ends the turn waits for it, and sees the message. $10 most messages that wait
 where not exists (select from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0 offset $10::bigint - 1)
