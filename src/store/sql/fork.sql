-- store::fork::fork: what a session said up to a seq, as a session of its own. What is stored up to a seq never changes and marks made later
-- are left out, so that no lock is needed and the source's owner waits for nothing. 0 rows: the source is gone, or another session that was made under its id, a session
-- with the new id exists, or the tenant is no more. Events and queue are not copied.
-- The epoch begins after that of a deleted session which had the new id.
{live},
{size},
source as (
  select r.revision, r.context_version from session_run r join sessions s on s.tenant_id = :tenant and s.session_id = :session
   where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3 and r.next_seq > :at and s.created_at = :source_created
     and {tenant_lives}),
f as (
  insert into sessions (tenant_id, session_id, forked_from, forked_at_seq) select :tenant, :new_session, :session, :at from source
   where not exists (select from session_run r where r.tenant_id = :tenant and r.session_id = :new_session)
  on conflict do nothing returning 1),
write_run as (
  insert into session_run (tenant_id, session_id, next_seq, context_version, revision, epoch, ctx_tokens)
  select :tenant, :new_session, :at + 1, s.context_version, :revision,
         coalesce((select i.result::bigint from idempotency i where i.tenant_id = :tenant and i.session_id = :new_session and i.request_id = ''), 0),
         z.overhead + z.tokens
    from f, source s, size z),
write_context as (
  insert into session_context (tenant_id, session_id, messages, overhead_tokens, user_tokens, user_parts, assistant_tokens,
                               assistant_parts, reasoning_tokens, reasoning_parts, tool_call_tokens, tool_call_parts,
                               tool_result_tokens, tool_result_parts, media_tokens, media_parts, summary_tokens, summary_parts,
                               pinned_tokens, pinned_parts, pruned_tokens, pruned_parts)
  select :tenant, :new_session, z.messages, z.overhead, z.t1, z.n1, z.t2, z.n2, z.t3, z.n3, z.t4, z.n4, z.t5, z.n5, z.t6, z.n6, z.t7, z.n7, z.t8,
         z.n8, z.t9, z.n9 from f, size z),
write_activity as (
  insert into session_activity (tenant_id, session_id, ttl)
  select :tenant, :new_session, a.ttl from f join session_activity a on a.tenant_id = :tenant and a.session_id = :session),
write_revision as (
  {copied_revision}),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result) select :tenant, :new_session, :request_id, :request_hash, :new_session from f where :request_id::text is not null),
write_messages as (
  insert into messages (tenant_id, session_id, seq, message_id, turn_id, step, role, tokens, pinned, is_summary, created_at, info,
                        voided_at_seq)
  select :tenant, :new_session, m.seq, m.message_id, m.turn_id, m.step, m.role, m.tokens, m.pinned, m.is_summary, m.created_at, m.info,
         case when m.voided_at_seq <= :at then m.voided_at_seq end
    from f join messages m on m.tenant_id = :tenant and m.session_id = :session and m.seq <= :at),
write_parts as (
  insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator,
                     pruned_at_seq, original_tokens)
  select :tenant, :new_session, p.message_id, p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest,
         {tokens_at}, p.category, p.estimator,
         {pruned_seq_at},
         case when p.pruned_at_seq <= :at or h.pruned_at_seq is not null then coalesce(p.original_tokens, p.tokens) end
    from f join messages m on m.tenant_id = :tenant and m.session_id = :session and m.seq <= :at
           join lateral (select * from parts p
                          where p.tenant_id = :tenant and p.session_id = :session and p.message_id = m.message_id offset 0) p on true
           left join past h on h.message_id = p.message_id and h.idx = p.idx),
write_past_prunes as (
  insert into past_prunes (tenant_id, session_id, message_id, idx, pruned_at_seq, restored_at_seq, tokens)
  select :tenant, :new_session, h.message_id, h.idx, h.pruned_at_seq, h.restored_at_seq, h.tokens
    from f join past_prunes h on h.tenant_id = :tenant and h.session_id = :session and h.restored_at_seq <= :at),
write_blobs as (
  insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
  select :tenant, :new_session, b.message_id, b.idx, b.blob_id
    from f join messages m on m.tenant_id = :tenant and m.session_id = :session and m.seq <= :at
           join lateral (select * from part_blobs b
                          where b.tenant_id = :tenant and b.session_id = :session and b.message_id = m.message_id
                          order by b.idx, b.blob_id offset 0) b on true),  -- ordered: by the key, never by blob
-- All are closed: the transcript is. Whoever answers one again is told that it is too late.
write_calls as (
  insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id, ord,
                          timeout, requested_at, deadline, edited_arguments, closed_at, answer_hash)
  select :tenant, :new_session, c.call_id, c.turn_id, c.step, c.status, c.tool_name, c.message_id, c.part_idx, c.result_message_id, c.ord, c.timeout,
         c.requested_at, c.deadline, c.edited_arguments, c.closed_at, c.answer_hash
    from f join tool_calls c on c.tenant_id = :tenant and c.session_id = :session and c.status >= 3
           join lateral (select m.seq from messages m
                          where m.tenant_id = :tenant and m.session_id = :session and m.message_id = c.message_id offset 0) m on m.seq <= :at),
write_compactions as (
  {copied_compactions})
select 1 from f
