-- store::queue::queued_message
select {queued_columns}, (select count(*) from queue p where p.tenant_id = :tenant and p.session_id = :session and p.status = 0 and p.pos <= q.pos)::int as position
      from queue q where q.tenant_id = :tenant and q.session_id = :session and q.message_id = :message
