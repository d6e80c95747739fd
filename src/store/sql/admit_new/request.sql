-- store::admission::first_request
insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
values (:tenant, :session, :request_id, :request_hash, :turn)
