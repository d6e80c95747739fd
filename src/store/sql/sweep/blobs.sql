-- store::blob::sweep_blobs: the next ones after a key
select b.tenant_id, b.blob_id,
       b.touched_at < now() - make_interval(secs => :age)
         and not exists (select from part_blobs p where p.tenant_id = b.tenant_id and p.blob_id = b.blob_id) as unused
  from blobs b
 where (b.tenant_id, b.blob_id) > (:tenant, :blob) order by b.tenant_id, b.blob_id limit :most
