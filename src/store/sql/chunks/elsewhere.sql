-- store::chunk::elsewhere
select u.tenant as tenant_id, u.session as session_id, u.ord, r.next_seq, r.state, r.step, r.attempt, c.n, c.body,
       coalesce((select true from messages m
                  where m.tenant_id = r.tenant_id and m.session_id = r.session_id and m.message_id = u.message limit 1),
                false) as committed
  from unnest(:tenants::text[], :sessions::text[], :messages::text[], :numbers::int[]) with ordinality as u(tenant, session, message, n, ord)
  join session_run r on r.tenant_id = u.tenant and r.session_id = u.session
  left join lateral (
    select p.message_id, p.n, p.body from partial_chunks p
     where p.tenant_id = r.tenant_id and p.session_id = r.session_id and p.epoch = r.epoch and p.message_id = u.message
       and p.n > u.n and r.state = 1
    union all
    select p.message_id, p.n, p.body from partial_chunks p
     where p.tenant_id = r.tenant_id and p.session_id = r.session_id and p.epoch = r.epoch and p.message_id > u.message
       and r.state = 1
    union all
    select p.message_id, p.n, p.body from partial_chunks p
     where p.tenant_id = r.tenant_id and p.session_id = r.session_id and p.epoch = r.epoch and p.message_id < u.message
       and r.state = 1
    offset 0) c
    on coalesce((select false from messages m
                  where m.tenant_id = r.tenant_id and m.session_id = r.session_id and m.message_id = c.message_id limit 1), true)
 order by u.ord, c.message_id, c.n
