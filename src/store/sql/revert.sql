-- store::compaction::revert: after lock_run. The newest applied compaction is taken back, and what it changed in the counters with it.
-- $3 compaction $4 context version as seen $5 payload $6 request id or null $7 its hash
with k as (
  select c.compaction_id, c.delta_messages, c.delta_overhead, c.delta_tokens, c.delta_parts
    from (select * from compactions n
           where n.tenant_id = $1 and n.session_id = $2 and n.status = 2 order by n.active_from_seq desc limit 1) c
   where c.compaction_id = $3),
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
   where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3 and r.context_version = $4
     and ($6::text is null
          or not exists (select from idempotency i where i.tenant_id = $1 and i.session_id = $2 and i.request_id = $6))
  returning r.epoch, r.next_seq, r.context_version, case when r.state in (1, 2) then r.turn_id end as turn_id),
end_compaction as (
  update compactions c set status = 4, reverted_at_seq = f.next_seq - 1
    from f where c.tenant_id = $1 and c.session_id = $2 and c.compaction_id = $3),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select $1, $2, $6, $7, $3 from f where $6::text is not null),
write_event as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
  select $1, $2, f.next_seq - 1, f.epoch, f.turn_id, 0, 0, 'compaction_reverted', array[$3], $5::bytea from f)
