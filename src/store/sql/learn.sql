-- store::calibration::learn
insert into calibration as known (model, ratio, calls)
select taught.model, greatest(:least::float8, least(:most::float8, taught.ratio)), taught.calls
  from unnest(:models::text[], :ratios::float8[], :calls::bigint[]) as taught(model, ratio, calls)
 order by taught.model
on conflict (model) do update
   set ratio = known.ratio + (excluded.ratio - known.ratio)
             * least(1, excluded.calls / least(:memory::float8, (known.calls + excluded.calls)::float8)),
       calls = known.calls + excluded.calls,
       updated_at = now()
