-- store::lease::cancels
select r.tenant_id, r.session_id, u.epoch, u.turn, l.lost
  from unnest(:tenants::text[], :sessions::text[], :epochs::bigint[], :turns::text[]) as u(tenant, session, epoch, turn)
  join session_run r on r.tenant_id = u.tenant and r.session_id = u.session
 cross join lateral (select (r.epoch <> u.epoch or r.turn_id <> u.turn or (r.state = 1 and r.owner <> :owner)) is true as lost) l
 where l.lost or (r.cancel <> 0 and r.state = 1)
