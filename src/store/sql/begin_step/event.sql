-- store::step::step_started
insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
select r.tenant_id, r.session_id, r.next_seq - 1, r.epoch, r.turn_id, r.step, 1, 'step_started', array[:revision::bigint::text],
       r.ctx_tokens + :offset::bigint, :payload
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
