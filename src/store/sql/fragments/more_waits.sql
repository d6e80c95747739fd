exists (select 1 from queue q where q.tenant_id = :tenant and q.session_id = :session and q.status = 0 and q.delivery <> 2)
