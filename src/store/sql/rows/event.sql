-- store::rows::event: one that belongs to no step
insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, payload)
select r.tenant_id, r.session_id, r.next_seq - 1, r.epoch, case when r.state in (1, 2) then r.turn_id end, 0, 0, :kind, :payload::bytea
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
