-- store::commit::events
insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
select :tenant, :session, :first_seq + u.n - 1, :new_epoch, case when u.of_turn then :turn end, u.step, u.attempt, u.kind,
       array(select f.ref from unnest(:refs::text[], :ref_events::int[]) with ordinality as f(ref, event, k) where f.event = u.n order by f.k),
       u.size, u.payload
  from unnest(:event_kinds::text[], :event_payloads::bytea[], :event_sizes::bigint[], :event_steps::int[], :event_attempts::int[],
              :event_of_turn::boolean[]) with ordinality as u(kind, payload, size, step, attempt, of_turn, n)
 where {accepted}
