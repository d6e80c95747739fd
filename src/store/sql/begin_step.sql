-- store::step::begin_step: the owner goes on to its next step. What the step is made for is told with it, so the statement is
-- refused when another configuration came in force meanwhile: the owner looks again, having lost nothing.
-- $3 epoch $4 op $5 revision that the step is made for $6 whether another one in force refuses it $7 payload of step_started
-- $8 what its prompt has beside the transcript, in tokens $9 lease (s) $10 owner $11 turn
with f as (
  update session_run r
     set op = r.op + 1, written_by = $10, next_seq = r.next_seq + 1, step = r.step + 1, attempt = 1, takeovers = 0,
         lease_until = greatest(r.lease_until, now() + make_interval(secs => $9))
   where r.tenant_id = $1 and r.session_id = $2 and r.epoch = $3 and r.op = $4 and r.state = 1
     and r.owner = $10 and r.turn_id = $11
     and (r.revision = $5 or not $6::boolean)
  returning r.epoch, r.op, r.next_seq, r.turn_id, r.ctx_tokens, r.state, r.cancel, r.step),
write_event as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
  select $1, $2, f.next_seq - 1, f.epoch, f.turn_id, f.step, 1, 'step_started', array[$5::bigint::text], f.ctx_tokens + $8::bigint, $7
    from f),
write_turn as (
  update turns t set step_count = f.step - 1 from f where t.tenant_id = $1 and t.session_id = $2 and t.turn_id = f.turn_id)
select f.state, f.cancel, f.next_seq from f
