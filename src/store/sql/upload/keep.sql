-- store::upload::keep_upload (remember)
insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
select :tenant, '', :request_id, :request_hash, :blob
 where :request_id::text is not null and {tenant_lives}
on conflict do nothing

-- store::upload::keep_upload (describe)
insert into blobs (tenant_id, blob_id, media_type, size_bytes)
select :tenant, :blob, :media_type, :bytes
 where {tenant_lives}
   and (select count(*) from blob_chunks where tenant_id = :tenant and blob_id = :upload) = :chunks
   and (:request_id::text is null or exists (
        select 1 from idempotency where tenant_id = :tenant and session_id = '' and request_id = :request_id and req_hash = :request_hash))
on conflict (tenant_id, blob_id) do update set touched_at = now()

-- store::upload::keep_upload (keep): unless the blob has its chunks already
update blob_chunks set blob_id = :blob
 where tenant_id = :tenant and blob_id = :upload
   and exists (select 1 from blobs where tenant_id = :tenant and blob_id = :blob)
   and not exists (select 1 from blob_chunks where tenant_id = :tenant and blob_id = :blob)

-- store::upload::keep_upload (discard)
delete from blob_chunks where tenant_id = :tenant and blob_id = :upload

-- store::upload::keep_upload (known)
select req_hash, result from idempotency where tenant_id = :tenant and session_id = '' and request_id = :request_id

-- store::upload::keep_upload (blob)
select media_type, size_bytes, created_at from blobs where tenant_id = :tenant and blob_id = :blob
