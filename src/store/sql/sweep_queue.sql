-- store::sweep::sweep_queue
with gone as (
  delete from queue where ctid = any(array(
    select q.ctid from queue q
     where q.ended_at < now() - make_interval(secs => :age)
       and not exists (select from turns t where t.tenant_id = q.tenant_id and t.session_id = q.session_id
                                             and t.state = 1 and t.first_seq <= q.seq)
     order by q.ended_at limit :most for update of q skip locked))
  returning tenant_id, session_id, message_id),
unkeep as (
  delete from part_blobs b using gone g
   where b.tenant_id = g.tenant_id and b.session_id = g.session_id and b.message_id = g.message_id
     and not exists (select from messages m
                      where m.tenant_id = g.tenant_id and m.session_id = g.session_id and m.message_id = g.message_id))
select 1 from gone
