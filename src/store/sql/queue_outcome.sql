-- store::queue::outcome: the outcome of an enqueue that wrote nothing: a repeated one returns the first.
-- $3 request id or null $4 message
select r.state, r.turn_id, i.req_hash, i.result, q.message_id, q.status, q.applied_to, q.drop_reason, q.enqueued_at, q.expires_at,
       (select count(*) from queue p where p.tenant_id = $1 and p.session_id = $2 and p.status = 0 and p.pos <= q.pos)::int as position
  from session_run r
  left join idempotency i on i.tenant_id = $1 and i.session_id = $2 and i.request_id = $3
  left join queue q on q.tenant_id = $1 and q.session_id = $2 and q.message_id = coalesce(i.result, $4)
 where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3
