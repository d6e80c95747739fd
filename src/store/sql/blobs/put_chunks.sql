-- store::blob::put_blob (chunks)
insert into blob_chunks (tenant_id, blob_id, idx, bytes)
select :tenant, :blob, u.idx - 1, u.bytes
  from unnest(:chunks::bytea[]) with ordinality as u(bytes, idx)
 where {tenant_lives}
on conflict do nothing
