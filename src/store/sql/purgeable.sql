-- store::delete::purgeable
with recursive tenants as (
  (select a.tenant_id from session_activity a order by a.tenant_id limit 1)
  union all
  select (select a.tenant_id from session_activity a where a.tenant_id > t.tenant_id order by a.tenant_id limit 1)
    from tenants t where t.tenant_id is not null)
select r.tenant_id, r.session_id
  from tenants t
  join lateral (select * from session_activity a
                 where a.tenant_id = t.tenant_id and a.updated_at = '-infinity' offset 0) a on true
  join lateral (select * from session_run r
                 where r.tenant_id = a.tenant_id and r.session_id = a.session_id offset 0) r on true
 where r.state = 3 and r.lease_until < now() limit :most
