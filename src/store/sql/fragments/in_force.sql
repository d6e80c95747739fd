(select * from compactions n
           where n.tenant_id = :tenant and n.session_id = :session and n.status = 2 order by n.active_from_seq desc limit 1)
