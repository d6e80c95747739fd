-- store::admission::request
insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
select r.tenant_id, r.session_id, :request_id, :request_hash, :turn
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
