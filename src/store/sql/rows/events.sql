-- store::rows::events
insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
select r.tenant_id, r.session_id, r.base + u.n - 1, r.epoch, r.turn_id, u.step, u.attempt, u.kind,
       case when u.ref = '' then '{}'::text[] else array[u.ref] end,
       case when u.kind = 'step_started' then r.ctx_tokens + :offset::bigint end, u.payload
  from {head} r,
       unnest(:kinds::text[], :payloads::bytea[], :refs::text[], :steps::int[], :attempts::int[])
         with ordinality as u(kind, payload, ref, step, attempt, n)
