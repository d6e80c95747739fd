-- store::blob::sweep_blobs
with seen as (
  select b.tenant_id, b.blob_id, b.touched_at from blobs b
   where (b.tenant_id, b.blob_id) > (:tenant, :blob) order by b.tenant_id, b.blob_id limit :most),
unused as (
  select s.tenant_id, s.blob_id from seen s
   where s.touched_at < now() - make_interval(secs => :age)
     and not exists (select from part_blobs p where p.tenant_id = s.tenant_id and p.blob_id = s.blob_id)),
gone as (
  delete from blobs b using unused u
   where b.tenant_id = u.tenant_id and b.blob_id = u.blob_id and b.touched_at < now() - make_interval(secs => :age)
  returning b.tenant_id, b.blob_id),
chunks as (
  delete from blob_chunks c using gone g where c.tenant_id = g.tenant_id and c.blob_id = g.blob_id)
select s.tenant_id, s.blob_id, (select count(*) from gone) as swept
  from seen s order by s.tenant_id desc, s.blob_id desc limit 1
