-- store::prune::restore: after lock_run. Results that one prune cleared are seen by the model again. 0 rows as in prune. The prune stays
-- known, for views as of a seq between the two.
-- $3 context version as seen $4 messages $5 positions $6 seq of the prune $7 payload $8 request id or null $9 hash $10 what the request led to beside the event
with marked as (
  select p.message_id, p.idx, p.tokens, p.original_tokens
    from unnest($4::text[], $5::int[]) as u(message, idx)
    join lateral (select * from parts p
                   where p.tenant_id = $1 and p.session_id = $2 and p.message_id = u.message and p.idx = u.idx
                     and p.pruned_at_seq = $6 offset 0) p on true),
shift as (
  select 0 as messages, 0::bigint as overhead, array[0, 0, 0, 0, m.back, 0, 0, 0, - m.back]::bigint[] as tokens,
         array[0, 0, 0, 0, 0, 0, 0, 0, - m.n]::int[] as parts
    from (select coalesce(sum(original_tokens - tokens), 0)::bigint as back, count(*) as n from marked) m),
f as (
  update session_run r
     set context_version = r.context_version + 1, next_seq = r.next_seq + 1, ctx_tokens = r.ctx_tokens + s.tokens[5]
    from shift s
   where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3 and r.context_version = $3 and exists (select from marked)
     and ($8::text is null
          or not exists (select from idempotency i where i.tenant_id = $1 and i.session_id = $2 and i.request_id = $8))
  returning r.epoch, r.next_seq, r.context_version, case when r.state in (1, 2) then r.turn_id end as turn_id),
write_marks as (
  update parts p set pruned_at_seq = null, tokens = p.original_tokens, original_tokens = null
    from f, marked m
   where p.tenant_id = $1 and p.session_id = $2 and p.message_id = m.message_id and p.idx = m.idx),
write_past as (
  insert into past_prunes (tenant_id, session_id, message_id, idx, pruned_at_seq, restored_at_seq, tokens)
  select $1, $2, m.message_id, m.idx, $6, f.next_seq - 1, m.tokens from f, marked m),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select $1, $2, $8, $9, (f.next_seq - 1)::text || $10::text from f where $8::text is not null),
write_event as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, payload)
  select $1, $2, f.next_seq - 1, f.epoch, f.turn_id, 0, 0, 'context_restored', $7::bytea from f)
