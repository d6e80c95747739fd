-- store::upload::write_upload
insert into blob_chunks (tenant_id, blob_id, idx, bytes)
select :tenant, :upload, :first::int + u.idx::int - 1, u.bytes
  from unnest(:chunks::bytea[]) with ordinality as u(bytes, idx)
 where {tenant_lives}
on conflict do nothing
returning 1
