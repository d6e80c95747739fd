-- store::stored_bytes::claim_measuring: a tenant that was deleted since deletions were read has nothing
insert into tenant_use as known (tenant_id, measured_at)
select u.tenant, now()
  from unnest(:tenants::text[]) as u(tenant)
 where not exists (select from tenant_deletions d
                    where d.tenant_id = u.tenant and (d.done_at is null or d.done_at > :known_at::timestamptz))
 order by u.tenant
on conflict (tenant_id) do update set measured_at = now()
 where known.measured_at < now() - make_interval(secs => :every)
returning tenant_id
