-- store::blob::put_blob
insert into blobs (tenant_id, blob_id, media_type, size_bytes)
select :tenant, :blob, :media_type, :bytes::bigint
 where {tenant_lives}
on conflict (tenant_id, blob_id) do update set touched_at = now()
returning 1

-- store::blob::put_blob (chunks)
insert into blob_chunks (tenant_id, blob_id, idx, bytes)
select :tenant, :blob, u.idx - 1, u.bytes
  from unnest(:chunks::bytea[]) with ordinality as u(bytes, idx)
 where {tenant_lives}
on conflict do nothing
