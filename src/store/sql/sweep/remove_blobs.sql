-- store::blob::sweep_blobs (remove)
delete from blobs b
 using unnest(:tenants::text[], :blobs::text[]) as u(tenant, blob)
 where b.tenant_id = u.tenant and b.blob_id = u.blob and b.touched_at < now() - make_interval(secs => :age)
   and not exists (select from part_blobs p where p.tenant_id = b.tenant_id and p.blob_id = b.blob_id)
returning 1

-- store::blob::sweep_blobs (chunks)
delete from blob_chunks c
 using unnest(:tenants::text[], :blobs::text[]) as u(tenant, blob)
 where c.tenant_id = u.tenant and c.blob_id = u.blob
   and not exists (select from blobs b where b.tenant_id = c.tenant_id and b.blob_id = c.blob_id)
