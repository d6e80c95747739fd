-- store::calibration::learn: of tenants that have a session; one that was deleted has none
insert into tenant_calibration as known (tenant_id, model, ratio, calls)
select taught.tenant, taught.model, greatest(:least::float8, least(:most::float8, taught.ratio)), taught.calls
  from unnest(:tenants::text[], :models::text[], :ratios::float8[], :calls::bigint[]) as taught(tenant, model, ratio, calls)
 where exists (select from sessions s where s.tenant_id = taught.tenant)
 order by taught.tenant, taught.model
on conflict (tenant_id, model) do update
   set ratio = known.ratio + (excluded.ratio - known.ratio)
             * least(1, excluded.calls / least(:memory::float8, (known.calls + excluded.calls)::float8)),
       calls = known.calls + excluded.calls,
       updated_at = now()
