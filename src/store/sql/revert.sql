-- store::compaction::revert: after lock_run. The newest applied compaction is taken back, and what it changed in the counters with it.
with k as (
  select c.compaction_id, c.delta_messages, c.delta_overhead, c.delta_tokens, c.delta_parts
    from {in_force} c
   where c.compaction_id = :compaction),
shift as (
  select - k.delta_messages as messages, - k.delta_overhead as overhead,
         array(select - t from unnest(k.delta_tokens) with ordinality as u(t, n) order by n) as tokens,
         array(select - p from unnest(k.delta_parts) with ordinality as u(p, n) order by n) as parts
    from k),
f as (
  update session_run r
     set context_version = r.context_version + 1, next_seq = r.next_seq + 1,
         ctx_tokens = r.ctx_tokens + s.overhead + (select sum(t) from unnest(s.tokens[1:8]) t)
    from shift s
   where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3 and r.context_version = :seen
     and {request_is_new}
  returning r.epoch, r.next_seq, r.context_version, case when r.state in (1, 2) then r.turn_id end as turn_id),
end_compaction as (
  update compactions c set status = 4, reverted_at_seq = f.next_seq - 1
    from f where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = :compaction),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select :tenant, :session, :request_id, :request_hash, :compaction from f where :request_id::text is not null),
write_event as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
  select :tenant, :session, f.next_seq - 1, f.epoch, f.turn_id, 0, 0, 'compaction_reverted', array[:compaction], :payload::bytea from f)
{write_context}
select f.context_version, f.next_seq from f
