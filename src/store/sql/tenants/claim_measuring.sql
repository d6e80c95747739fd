-- store::stored_bytes::claim_measuring: a tenant that was deleted since deletions were read has nothing
insert into tenant_use as known (tenant_id, measured_at)
select u.tenant, now()
  from unnest(:tenants::text[]) as u(tenant)
 where {reported_tenant_lives}
 order by u.tenant
on conflict (tenant_id) do update set measured_at = now()
 where known.measured_at < now() - make_interval(secs => :every)
returning tenant_id
