-- store::quota::tenant_use
select t.tenant_id, u.stored_bytes + u.written_bytes as stored_bytes, coalesce(u.written_bytes, 0) as written_bytes,
       coalesce(extract(epoch from greatest(u.tokens_due, now()) - now()), 0)::float8 as owed,
       r.turns, r.reserved
  from unnest(:tenants::text[]) as t(tenant_id) left join tenant_use u on u.tenant_id = t.tenant_id
 cross join lateral (select coalesce(sum(o.turns), 0)::bigint as turns, coalesce(sum(o.reserved_seconds), 0)::float8 as reserved
                       from tenant_running o
                      where o.tenant_id = t.tenant_id and o.replica_id <> :replica and o.at > now() - make_interval(secs => :age)) r
