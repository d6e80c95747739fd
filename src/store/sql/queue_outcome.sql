-- store::queue::outcome: the outcome of an enqueue that wrote nothing: a repeated one returns the first.
select r.state, r.turn_id, i.req_hash, i.result, q.message_id, q.status, q.applied_to, q.drop_reason, q.enqueued_at, q.expires_at,
       (select count(*) from queue p where p.tenant_id = :tenant and p.session_id = :session and p.status = 0 and p.pos <= q.pos)::int as position
  from session_run r
  left join idempotency i on i.tenant_id = :tenant and i.session_id = :session and i.request_id = :request_id
  left join queue q on q.tenant_id = :tenant and q.session_id = :session and q.message_id = coalesce(i.result, :message)
 where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3
