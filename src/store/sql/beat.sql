-- store::lease::beat: one statement per replica for the turns in its memory. It never waits: a row that is locked now is being
-- written now. A lease that had run out is renewed with another version, so that nobody takes the turn over who saw it before. A key that
-- does not come back, or comes back with mine = false, is a lost lease.
with u as (select * from unnest(:tenants::text[], :sessions::text[], :epochs::bigint[], :turns::text[]) as u(tenant, session, epoch, turn)),
l as (
  select r.tenant_id, r.session_id from session_run r join u on r.tenant_id = u.tenant and r.session_id = u.session
   where r.epoch = u.epoch and r.turn_id = u.turn and r.owner = :replica and r.state = 1 for no key update of r skip locked),
w as (
  update session_run r set lease_until = greatest(r.lease_until, now() + make_interval(secs => :lease)),
                           version = case when r.lease_until < now() then r.version + 1 else r.version end from l
   where r.tenant_id = l.tenant_id and r.session_id = l.session_id returning r.tenant_id, r.session_id)
select r.tenant_id, r.session_id, u.epoch, u.turn,
       (r.epoch = u.epoch and r.turn_id = u.turn and r.owner = :replica and r.state = 1) is true as mine,
       w.session_id is not null as renewed, r.cancel
  from u join session_run r on r.tenant_id = u.tenant and r.session_id = u.session
         left join w on w.tenant_id = r.tenant_id and w.session_id = r.session_id
