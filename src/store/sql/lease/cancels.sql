-- store::lease::cancels: where a turn is not as its owner knows it
select u.tenant as tenant_id, u.session as session_id, u.epoch, u.turn, r.epoch as in_force, r.turn_id, r.state, r.owner, r.cancel
  from unnest(:tenants::text[], :sessions::text[], :epochs::bigint[], :turns::text[]) as u(tenant, session, epoch, turn)
  left join session_run r on r.tenant_id = u.tenant and r.session_id = u.session
 where r.state is null or r.cancel <> 0 or r.epoch <> u.epoch or r.turn_id is distinct from u.turn or r.owner is distinct from :owner
