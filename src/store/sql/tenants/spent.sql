-- store::quota::report_spent: a tenant that was deleted since deletions were read spent nothing
insert into tenant_use as known (tenant_id, tokens_due)
select u.tenant, now() + make_interval(secs => u.seconds)
  from unnest(:tenants::text[], :seconds::float8[]) as u(tenant, seconds)
 where {reported_tenant_lives}
 order by u.tenant
on conflict (tenant_id) do update
   set tokens_due = greatest(known.tokens_due, now()) + (excluded.tokens_due - now())
