-- store::following::fate
select q.status, q.seq, m.turn_id, case when t.request_id = q.request_id then t.first_seq - 1 else q.seq - 1 end as after
  from queue q
  left join lateral (select m.turn_id from messages m
                      where m.tenant_id = :tenant and m.session_id = :session and m.message_id = q.applied_to offset 0) m on true
  left join lateral (select t.request_id, t.first_seq from turns t
                      where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = m.turn_id offset 0) t on true
 where q.tenant_id = :tenant and q.session_id = :session and q.message_id = :message
