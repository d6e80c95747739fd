-- store::compaction::swap: after lock_run. The compaction comes in force if it still runs and the context is the one that it was
-- made from; appends in between are no hindrance. Its summary stands at the seq of compaction_completed.
-- $27 compaction $28 first seq $29 last seq $30 messages $31 overhead $32 tokens $33 parts (changes, by category) $34 info
-- $39 seqs in between that stay
-- summary: $35 message or null $36 role $37 overhead $38 info
with k as (
  select c.context_version from compactions c
   where c.tenant_id = $1 and c.session_id = $2 and c.compaction_id = $27 and c.status = 1),
shift as (select $30::int as messages, $31::bigint as overhead, $32::bigint[] as tokens, $33::int[] as parts),
before as (
  select c.compaction_id from compactions c
   where c.tenant_id = $1 and c.session_id = $2 and c.status = 2 order by c.active_from_seq desc limit 1),
f as (
  update session_run r
     set context_version = r.context_version + 1, next_seq = r.next_seq + cardinality($3::text[]),
         ctx_tokens = r.ctx_tokens + s.overhead + (select sum(t) from unnest(s.tokens[1:8]) t)
    from k, shift s
   where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3 and r.context_version = k.context_version
  returning r.epoch, r.next_seq, r.next_seq - cardinality($3::text[]) as base, r.ctx_tokens, r.context_version,
            case when r.state in (1, 2) then r.turn_id end as turn_id),
end_compaction as (
  update compactions c
     set status = 2, lease_until = null, ended_at = now(), from_seq = $28, to_seq = $29, kept = $39, active_from_seq = f.base,
         predecessor = (select compaction_id from before), summary_message = $35, delta_messages = s.messages,
         delta_overhead = s.overhead, delta_tokens = s.tokens, delta_parts = s.parts, info = $34::bytea
    from f, shift s where c.tenant_id = $1 and c.session_id = $2 and c.compaction_id = $27),
write_summary as (
  insert into messages (tenant_id, session_id, seq, message_id, role, step, tokens, is_summary, info)
  select $1, $2, f.base, $35, $36::smallint, 0, $37::int, true, $38::bytea from f where $35::text is not null)
