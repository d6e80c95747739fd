octet_length(m.info)
       + coalesce((select sum(octet_length(p.body) + coalesce(octet_length(p.rest), 0)) from parts p
                    where p.tenant_id = :tenant and p.session_id = :session and p.message_id = m.message_id), 0)
