(select n.*, n.seq as place from messages n
        where n.tenant_id = :tenant and n.session_id = :session and n.seq <= :at and n.seq < :place order by n.seq desc limit :limit)
