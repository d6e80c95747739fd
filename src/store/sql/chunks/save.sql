-- store::chunk::save
insert into partial_chunks (tenant_id, session_id, epoch, message_id, n, body)
select r.tenant_id, r.session_id, u.epoch, u.message, u.n, u.body
  from unnest(:tenants::text[], :sessions::text[], :turns::text[], :epochs::bigint[], :messages::text[], :numbers::int[], :bodies::bytea[])
         as u(tenant, session, turn, epoch, message, n, body)
  join session_run r on r.tenant_id = u.tenant and r.session_id = u.session
 where r.epoch = u.epoch and r.turn_id = u.turn and r.owner = :replica and r.state = 1
    on conflict do nothing returning 1
