-- store::queue::queued: after this one; the first message in any case
select * from (select q.*, count(*) over () as page_rows, row_number() over w as nth,
                      sum(octet_length(q.body) + coalesce(octet_length(q.request), 0)) over w as bytes
                 from (select * from (select {queued_columns}, row_number() over (order by q.pos)::int as position
                         from queue q where q.tenant_id = :tenant and q.session_id = :session and q.status = 0) q
                        where q.pos > :after order by q.pos limit :limit) q
               window w as (order by q.pos)) q
 where q.bytes <= :bytes or q.nth = 1 order by q.pos
