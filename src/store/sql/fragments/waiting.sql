array(select q.message_id from queue q where q.tenant_id = :tenant and q.session_id = :session and q.status = 0 order by q.pos)
