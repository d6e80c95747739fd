-- store::admission::admit_new: a session and its first turn in one statement. 0 rows: the session exists.
-- The epoch begins behind that of a deleted session which had this id.
-- $27 to $35 as in admit ($31 is the first revision) $36 toolset id $37 config $38 tools $39 their tokens $40 the session's time to live (s) or null
with delta as (select coalesce((select sum(t) from unnest($12::int[]) t), 0)
                    + coalesce((select sum(t) from unnest($23::int[]) t), 0) as tokens),
s as (insert into sessions (tenant_id, session_id) values ($1, $2) on conflict do nothing returning 1),
f as (
  insert into session_run (tenant_id, session_id, state, owner, epoch, lease_until, turn_id, step, attempt, turn_deadline, next_seq,
                           ctx_tokens, revision)
  select $1, $2, 1, $28, 1 + coalesce((select i.result::bigint from idempotency i
                                        where i.tenant_id = $1 and i.session_id = $2 and i.request_id = ''), 0), now() + make_interval(secs => $29), $27, 1, 1, now() + make_interval(secs => $30),
         1 + cardinality($3::text[]), delta.tokens, $31::bigint
    from s, delta
  returning epoch, op, next_seq, 1::bigint as base, turn_id, ctx_tokens),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select $1, $2, $32, $33, $27 from f where $32::text is not null),
write_turn as (
  insert into turns (tenant_id, session_id, turn_id, request_id, request, model, first_seq)
  select $1, $2, $27, $32, $34::bytea, $35, f.base from f),
write_revision as (
  insert into session_revisions (tenant_id, session_id, revision, toolset_id, config) select $1, $2, $31, $36, $37::bytea from f),
write_tools as (
  insert into toolsets (tenant_id, toolset_id, tools, tokens, estimator)
  select $1, $36, $38::bytea, $39::int, $25 from f on conflict do nothing),
touch as (
  insert into session_activity (tenant_id, session_id, ttl) select $1, $2, make_interval(secs => $40) from f)
, write_events as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
  select $1, $2, f.base + u.n - 1, f.epoch, f.turn_id, u.step, u.attempt, u.kind,
         case when u.ref = '' then '{}'::text[] else array[u.ref] end,
         case when u.kind = 'step_started' then f.ctx_tokens + $26::bigint end, u.payload
    from f, unnest($3::text[], $4::bytea[], $5::text[], $6::int[], $7::int[]) with ordinality as u(kind, payload, ref, step, attempt, n)),
write_messages as (
  insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, pinned, info)
  select $1, $2, f.base + u.n - 1, u.id, f.turn_id, u.role, u.step, u.tokens, u.pinned, u.info
    from f, unnest($8::int[], $9::text[], $10::smallint[], $11::int[], $12::int[], $13::boolean[], $14::bytea[])
            as u(n, id, role, step, tokens, pinned, info)),
write_parts as (
  insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator)
  select $1, $2, u.message, u.idx, u.kind, u.call, u.name, u.outcome, u.body, u.rest, u.tokens, u.category, $25
    from f, unnest($15::text[], $16::int[], $17::text[], $18::text[], $19::text[], $20::smallint[], $21::text[], $22::bytea[],
                   $23::int[], $24::smallint[]) as u(message, idx, kind, call, name, outcome, body, rest, tokens, category)),
-- A medium's body is the blob that holds its content.
write_media as (
  insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
  select $1, $2, u.message, u.idx, u.body
    from f, unnest($15::text[], $16::int[], $17::text[], $21::text[]) as u(message, idx, kind, body) where u.kind = 'media')
, grown as (
  select (select count(*) from unnest($9::text[])) as messages, (select coalesce(sum(t), 0) from unnest($12::int[]) t) as overhead,
         coalesce(sum(t) filter (where c = 1), 0) as t1, count(*) filter (where c = 1) as n1,
         coalesce(sum(t) filter (where c = 2), 0) as t2, count(*) filter (where c = 2) as n2,
         coalesce(sum(t) filter (where c = 3), 0) as t3, count(*) filter (where c = 3) as n3,
         coalesce(sum(t) filter (where c = 4), 0) as t4, count(*) filter (where c = 4) as n4,
         coalesce(sum(t) filter (where c = 5), 0) as t5, count(*) filter (where c = 5) as n5,
         coalesce(sum(t) filter (where c = 6), 0) as t6, count(*) filter (where c = 6) as n6,
         coalesce(sum(t) filter (where c = 8), 0) as t8, count(*) filter (where c = 8) as n8
    from unnest($23::int[], $24::smallint[]) as u(t, c))
, write_context as (
  insert into session_context (tenant_id, session_id, messages, overhead_tokens, user_tokens, user_parts, assistant_tokens,
                               assistant_parts, reasoning_tokens, reasoning_parts, tool_call_tokens, tool_call_parts,
                               tool_result_tokens, tool_result_parts, media_tokens, media_parts, pinned_tokens, pinned_parts)
  select $1, $2, g.messages, g.overhead, g.t1, g.n1, g.t2, g.n2, g.t3, g.n3, g.t4, g.n4, g.t5, g.n5, g.t6, g.n6, g.t8,
         g.n8 from f, grown g)
 select f.epoch, f.op, f.turn_id, f.next_seq from f
