-- store::lease::candidates
select r.tenant_id, r.session_id, r.epoch, r.state = 2 as waiting from session_run r
 where r.live and {is_due}
   and not exists (select from unnest(:tenants::text[], :sessions::text[]) as p(tenant, session)
                    where p.tenant = r.tenant_id and p.session = r.session_id)
 order by random() limit :limit
