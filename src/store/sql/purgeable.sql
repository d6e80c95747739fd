-- store::delete::purgeable
{active_tenants}
select r.tenant_id, r.session_id
  from tenants t
  join lateral (select * from session_activity a
                 where a.tenant_id = t.tenant_id and a.updated_at = '-infinity' offset 0) a on true
  join lateral (select * from session_run r
                 where r.tenant_id = a.tenant_id and r.session_id = a.session_id offset 0) r on true
 where r.state = 3 and r.lease_until < now() limit :most
