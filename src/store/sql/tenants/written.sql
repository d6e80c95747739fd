-- store::stored_bytes::report_written: a tenant that was deleted since deletions were read has nothing
insert into tenant_use as known (tenant_id, written_bytes)
select u.tenant, u.bytes
  from unnest(:tenants::text[], :bytes::bigint[]) as u(tenant, bytes)
 where {reported_tenant_lives}
 order by u.tenant
on conflict (tenant_id) do update set written_bytes = known.written_bytes + excluded.written_bytes
