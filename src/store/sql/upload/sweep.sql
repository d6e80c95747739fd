-- store::upload::sweep_uploads
with recursive tenants as (
  (select tenant_id from blob_chunks order by tenant_id limit 1)
  union all
  select (select c.tenant_id from blob_chunks c where c.tenant_id > t.tenant_id order by c.tenant_id limit 1)
    from tenants t where t.tenant_id is not null),
old as (
  select c.tenant_id, c.blob_id, c.idx from tenants t
   cross join lateral (
     select b.tenant_id, b.blob_id, b.idx from blob_chunks b
      where b.tenant_id = t.tenant_id and b.blob_id >= 'upload:' and b.blob_id < 'upload:' || lpad(
            to_hex((extract(epoch from now() - make_interval(secs => :age)) * 1000)::bigint), 12, '0')
      order by b.blob_id, b.idx limit :most) c
   limit :most)
delete from blob_chunks c using old
 where c.tenant_id = old.tenant_id and c.blob_id = old.blob_id and c.idx = old.idx
returning 1
