-- store::following::starting
select q.tenant_id, q.session_id
  from queue q
  join session_run r on r.tenant_id = q.tenant_id and r.session_id = q.session_id and r.state = 0 and r.open_calls = 0
 where q.status = 0 and q.starts_turn and q.tenant_id <> all(:without::text[])
   and not exists (select from unnest(:tenants::text[], :sessions::text[]) as p(tenant, session)
                    where p.tenant = q.tenant_id and p.session = q.session_id)
 group by q.tenant_id, q.session_id order by random() limit :limit
