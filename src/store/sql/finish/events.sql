-- store::turn::end_events: the last one is that of the end, if the turn ends. It lists what waits: gate and row lock are held.
insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
select r.tenant_id, r.session_id, r.base + u.n - 1, r.epoch, r.turn_id, coalesce(u.step, r.step), coalesce(u.attempt, r.attempt), u.kind,
       case when u.n > cardinality(:kinds::text[]) then {waiting}
            when u.ref = '' then '{}'::text[] else array[u.ref] end,
       case when u.kind = 'step_started' then r.ctx_tokens + :offset::bigint end, u.payload
  from {head} r,
       unnest(:kinds::text[] || 'turn_completed'::text, :payloads::bytea[] || :payload::bytea, :refs::text[] || ''::text,
              :steps::int[] || null::int, :attempts::int[] || null::int)
         with ordinality as u(kind, payload, ref, step, attempt, n)
 where r.state = 0 or u.n <= cardinality(:kinds::text[])
