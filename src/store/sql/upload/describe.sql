-- store::upload::keep_upload (describe)
insert into blobs (tenant_id, blob_id, media_type, size_bytes)
select :tenant, :blob, :media_type, :bytes
 where {tenant_lives}
   and (select count(*) from blob_chunks where tenant_id = :tenant and blob_id = :upload) = :chunks
   and (:request_id::text is null or exists (
        select 1 from idempotency where tenant_id = :tenant and session_id = '' and request_id = :request_id and req_hash = :request_hash))
on conflict (tenant_id, blob_id) do update set touched_at = now()
