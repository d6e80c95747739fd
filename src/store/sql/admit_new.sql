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
