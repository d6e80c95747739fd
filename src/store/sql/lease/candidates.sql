-- store::lease::candidates: calls whose time is up, found by that time, and, where it is asked for, turns without an owner
select c.tenant_id, c.session_id, c.epoch, c.waiting
  from (select r.tenant_id, r.session_id, r.epoch, true as waiting
          from session_run r where r.tool_deadline < now() and r.state = 2
        union all
        select r.tenant_id, r.session_id, r.epoch, false
          from turns t join session_run r on r.tenant_id = t.tenant_id and r.session_id = t.session_id
         where :orphans::boolean and t.state = 1 and r.state = 1 and {lease_is_over}) c
 where not exists (select from unnest(:tenants::text[], :sessions::text[]) as p(tenant, session)
                    where p.tenant = c.tenant_id and p.session = c.session_id)
 order by random() limit :limit
