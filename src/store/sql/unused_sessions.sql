-- store::sweep::unused_sessions: `ttl` is the server's time to live (s)
{active_tenants},
by_own as (
  select a.tenant_id, a.session_id
    from session_activity a
   where a.ttl is not null and (a.updated_at at time zone 'UTC') + a.ttl < now() at time zone 'UTC' and a.updated_at > '-infinity'
     and exists (select from session_run r where r.tenant_id = a.tenant_id and r.session_id = a.session_id and r.state = 0)
     and not exists (select from queue q where q.tenant_id = a.tenant_id and q.session_id = a.session_id and q.status = 0
                                           and q.enqueued_at >= now() - least(a.ttl, make_interval(secs => :ttl)))
   order by (a.updated_at at time zone 'UTC') + a.ttl limit :most),
by_server as (
  select a.tenant_id, a.session_id
    from tenants t
    join lateral (select a.tenant_id, a.session_id
                    from session_activity a
                   where a.tenant_id = t.tenant_id and a.updated_at < now() - make_interval(secs => :ttl) and a.updated_at > '-infinity'
                     and exists (select from session_run r
                                  where r.tenant_id = a.tenant_id and r.session_id = a.session_id and r.state = 0)
                     and not exists (select from queue q
                                      where q.tenant_id = a.tenant_id and q.session_id = a.session_id and q.status = 0
                                        and q.enqueued_at >= now() - least(a.ttl, make_interval(secs => :ttl)))
                   order by a.updated_at limit :most) a on true)
select * from by_own union select * from by_server limit :most
