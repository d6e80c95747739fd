-- store::upload::keep_upload (remember)
insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
select :tenant, '', :request_id, :request_hash, :blob
 where :request_id::text is not null and {tenant_lives}
on conflict do nothing
