-- store::compaction::swap: after lock_run. The compaction comes in force if it still runs and the context is the one that it was
-- made from; appends in between are no hindrance. Its summary stands at the seq of compaction_completed.
-- `kept` are the seqs in between that stay, beside those that are pinned unless `hides_pinned`. What it changes in the counters is given by category.
with k as (
  select c.context_version from compactions c
   where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = :compaction and c.status = 1),
shift as (select :shift_messages::int as messages, :shift_overhead::bigint as overhead, :shift_tokens::bigint[] as tokens, :shift_parts::int[] as parts),
before as (
  select c.compaction_id from {in_force} c),
f as (
  update session_run r
     set context_version = r.context_version + 1, next_seq = r.next_seq + cardinality(:kinds::text[]),
         ctx_tokens = r.ctx_tokens + s.overhead + (select sum(t) from unnest(s.tokens[1:8]) t)
    from k, shift s
   where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3 and r.context_version = k.context_version
  returning r.epoch, r.next_seq, r.next_seq - cardinality(:kinds::text[]) as base, r.ctx_tokens, r.context_version,
            case when r.state in (1, 2) then r.turn_id end as turn_id),
end_compaction as (
  update compactions c
     set status = 2, lease_until = null, ended_at = now(), from_seq = :from_seq, to_seq = :to_seq, kept = :kept, hides_pinned = :hides_pinned, active_from_seq = f.base,
         predecessor = (select compaction_id from before), summary_message = :summary, delta_messages = s.messages,
         delta_overhead = s.overhead, delta_tokens = s.tokens, delta_parts = s.parts, info = :info::bytea
    from f, shift s where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = :compaction),
write_summary as (
  insert into messages (tenant_id, session_id, seq, message_id, role, step, tokens, is_summary, info)
  select :tenant, :session, f.base, :summary, :summary_role::smallint, 0, :summary_tokens::int, true, :summary_info::bytea from f where :summary::text is not null)
{write_rows}
{write_context}
select f.context_version, f.next_seq from f
