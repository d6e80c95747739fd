-- store::prune::request: it led to the event's seq, and what else is to be said of it
insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
select r.tenant_id, r.session_id, :request_id, :request_hash, (r.next_seq - 1)::text || :led::text
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
