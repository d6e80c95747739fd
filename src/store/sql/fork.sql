,
-- What a session said up to a seq, as a session of its own. What is stored up to a seq never changes and marks made later
-- are left out, so that no lock is needed and the source's owner waits for nothing. 0 rows: there is no such source, or a session
-- with the new id exists. Events and queue are not copied.
-- The epoch begins after that of a deleted session which had the new id.
-- $4 new session $5 request id or null $6 its hash $7 its first revision
source as (
  select r.revision, r.context_version from session_run r
   where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3 and r.next_seq > $3),
f as (
  insert into sessions (tenant_id, session_id, forked_from, forked_at_seq) select $1, $4, $2, $3 from source
  on conflict do nothing returning 1),
write_run as (
  insert into session_run (tenant_id, session_id, next_seq, context_version, revision, epoch, ctx_tokens)
  select $1, $4, $3 + 1, s.context_version, $7,
         coalesce((select i.result::bigint from idempotency i where i.tenant_id = $1 and i.session_id = $4 and i.request_id = ''), 0),
         z.overhead + z.tokens
    from f, source s, size z),
write_context as (
  insert into session_context (tenant_id, session_id, messages, overhead_tokens, user_tokens, user_parts, assistant_tokens,
                               assistant_parts, reasoning_tokens, reasoning_parts, tool_call_tokens, tool_call_parts,
                               tool_result_tokens, tool_result_parts, media_tokens, media_parts, summary_tokens, summary_parts,
                               pinned_tokens, pinned_parts, pruned_tokens, pruned_parts)
  select $1, $4, z.messages, z.overhead, z.t1, z.n1, z.t2, z.n2, z.t3, z.n3, z.t4, z.n4, z.t5, z.n5, z.t6, z.n6, z.t7, z.n7, z.t8,
         z.n8, z.t9, z.n9 from f, size z),
write_activity as (
  insert into session_activity (tenant_id, session_id, ttl)
  select $1, $4, a.ttl from f join session_activity a on a.tenant_id = $1 and a.session_id = $2),
write_revision as (
  insert into session_revisions (tenant_id, session_id, revision, toolset_id, config)
  select $1, $4, $7, v.toolset_id, v.config
    from f, source s join session_revisions v on v.tenant_id = $1 and v.session_id = $2 and v.revision = s.revision),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result) select $1, $4, $5, $6, $4 from f where $5::text is not null),
write_messages as (
  insert into messages (tenant_id, session_id, seq, message_id, turn_id, step, role, tokens, pinned, is_summary, created_at, info,
                        voided_at_seq)
  select $1, $4, m.seq, m.message_id, m.turn_id, m.step, m.role, m.tokens, m.pinned, m.is_summary, m.created_at, m.info,
         case when m.voided_at_seq <= $3 then m.voided_at_seq end
    from f join messages m on m.tenant_id = $1 and m.session_id = $2 and m.seq <= $3),
write_parts as (
  insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator,
                     pruned_at_seq, original_tokens)
  select $1, $4, p.message_id, p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest,
         case when p.pruned_at_seq <= $3 then p.tokens else coalesce(h.tokens, p.original_tokens, p.tokens) end, p.category, p.estimator,
         case when p.pruned_at_seq <= $3 then p.pruned_at_seq else h.pruned_at_seq end,
         case when p.pruned_at_seq <= $3 or h.pruned_at_seq is not null then coalesce(p.original_tokens, p.tokens) end
    from f join messages m on m.tenant_id = $1 and m.session_id = $2 and m.seq <= $3
           join lateral (select * from parts p
                          where p.tenant_id = $1 and p.session_id = $2 and p.message_id = m.message_id offset 0) p on true
           left join past h on h.message_id = p.message_id and h.idx = p.idx),
write_past_prunes as (
  insert into past_prunes (tenant_id, session_id, message_id, idx, pruned_at_seq, restored_at_seq, tokens)
  select $1, $4, h.message_id, h.idx, h.pruned_at_seq, h.restored_at_seq, h.tokens
    from f join past_prunes h on h.tenant_id = $1 and h.session_id = $2 and h.restored_at_seq <= $3),
write_blobs as (
  insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
  select $1, $4, b.message_id, b.idx, b.blob_id
    from f join messages m on m.tenant_id = $1 and m.session_id = $2 and m.seq <= $3
           join lateral (select * from part_blobs b
                          where b.tenant_id = $1 and b.session_id = $2 and b.message_id = m.message_id
                          order by b.idx, b.blob_id offset 0) b on true),  -- ordered: by the key, never by blob
-- All are closed: the transcript is. Whoever answers one again is told that it is too late.
write_calls as (
  insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id, ord,
                          timeout, requested_at, deadline, edited_arguments, closed_at, answer_hash)
  select $1, $4, c.call_id, c.turn_id, c.step, c.status, c.tool_name, c.message_id, c.part_idx, c.result_message_id, c.ord, c.timeout,
         c.requested_at, c.deadline, c.edited_arguments, c.closed_at, c.answer_hash
    from f join tool_calls c on c.tenant_id = $1 and c.session_id = $2 and c.status >= 3
           join lateral (select m.seq from messages m
                          where m.tenant_id = $1 and m.session_id = $2 and m.message_id = c.message_id offset 0) m on m.seq <= $3),
write_compactions as (
  insert into compactions (tenant_id, session_id, compaction_id, status, context_version, begun_at_seq, from_seq, to_seq, active_from_seq,
                           kept, reverted_at_seq, predecessor, summary_message, delta_messages, delta_overhead, delta_tokens,
                           delta_parts, info, created_at, ended_at)
  select $1, $4, c.compaction_id, case when c.reverted_at_seq <= $3 then 4 else 2 end, c.context_version, c.begun_at_seq, c.from_seq, c.to_seq,
         c.active_from_seq, c.kept, case when c.reverted_at_seq <= $3 then c.reverted_at_seq end, c.predecessor, c.summary_message,
         c.delta_messages, c.delta_overhead, c.delta_tokens, c.delta_parts, c.info, c.created_at, c.ended_at
    from f join compactions c on c.tenant_id = $1 and c.session_id = $2 and c.status in (2, 4) and c.active_from_seq <= $3)
select 1 from f
