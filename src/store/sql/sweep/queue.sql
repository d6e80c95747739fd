-- store::sweep::sweep_queue (media): of queued messages that go next, unless it is a message's too
delete from part_blobs b
 using (select q.tenant_id, q.session_id, q.message_id from queue q
         where q.ended_at < now() - make_interval(secs => :age)
           and not exists (select from turns t where t.tenant_id = q.tenant_id and t.session_id = q.session_id
                                                 and t.state = 1 and t.first_seq <= q.seq)
         order by q.ended_at limit :most for update of q skip locked) g
 where b.tenant_id = g.tenant_id and b.session_id = g.session_id and b.message_id = g.message_id
   and not exists (select from messages m
                    where m.tenant_id = g.tenant_id and m.session_id = g.session_id and m.message_id = g.message_id)

-- store::sweep::sweep_queue: those whose media are given up or a message's. What the live turn took stays, for a rollback
delete from queue where ctid = any(array(
  select q.ctid from queue q
   where q.ended_at < now() - make_interval(secs => :age)
     and not exists (select from turns t where t.tenant_id = q.tenant_id and t.session_id = q.session_id
                                           and t.state = 1 and t.first_seq <= q.seq)
     and not exists (select from part_blobs b
                      where b.tenant_id = q.tenant_id and b.session_id = q.session_id and b.message_id = q.message_id
                        and not exists (select from messages m where m.tenant_id = b.tenant_id and m.session_id = b.session_id
                                                                 and m.message_id = b.message_id))
   order by q.ended_at limit :most for update of q skip locked))
returning 1
