-- store::lease::candidates: turns that run are few, and those that wait are found by their time
select c.tenant_id, c.session_id, c.epoch, c.waiting
  from (select r.tenant_id, r.session_id, r.epoch, false as waiting
          from session_run r where r.live and r.state = 1 and r.lease_until < now()
        union all
        select r.tenant_id, r.session_id, r.epoch, true
          from session_run r where r.live and r.state = 2 and r.tool_deadline < now()) c
 where not exists (select from unnest(:tenants::text[], :sessions::text[]) as p(tenant, session)
                    where p.tenant = c.tenant_id and p.session = c.session_id)
 order by random() limit :limit
