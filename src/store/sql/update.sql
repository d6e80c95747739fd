-- store::update::update: after lock_run. A new revision of the configuration, with its events; in force at once for whatever is
-- begun from now on. Whoever owns a turn is not disturbed. 0 rows: deleted, changed since it was read, or a request that is known.
-- $3 revision as read $4 toolset id $5 config $6 tools $7 their tokens $8 estimator $9 whether prompts are others from now on
-- $10 kinds of the events $11 payloads $12 request id or null $13 its hash
with f as (
  update session_run r
     set revision = r.revision + 1, next_seq = r.next_seq + cardinality($10::text[]),
         anchor_input = case when $9::boolean then null else r.anchor_input end,
         anchor_output = case when $9::boolean then null else r.anchor_output end,
         anchor_version = case when $9::boolean then null else r.anchor_version end,
         anchor_tokens = case when $9::boolean then null else r.anchor_tokens end
   where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3 and r.revision = $3
     and ($12::text is null
          or not exists (select from idempotency i where i.tenant_id = $1 and i.session_id = $2 and i.request_id = $12))
  returning r.epoch, r.revision, r.next_seq, r.next_seq - cardinality($10::text[]) as base),
write_revision as (
  insert into session_revisions (tenant_id, session_id, revision, toolset_id, config)
  select $1, $2, f.revision, $4, $5::bytea from f),
write_tools as (
  insert into toolsets (tenant_id, toolset_id, tools, tokens, estimator)
  select $1, $4, $6::bytea, $7::int, $8 from f on conflict do nothing),
write_events as (
  insert into events (tenant_id, session_id, seq, epoch, step, attempt, kind, size, payload)
  select $1, $2, f.base + u.n - 1, f.epoch, 0, 0, u.kind,
         case when u.kind = 'model_switched'
              then (select c.messages from session_context c where c.tenant_id = $1 and c.session_id = $2) end, u.payload
    from f, unnest($10::text[], $11::bytea[]) with ordinality as u(kind, payload, n)),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select $1, $2, $12, $13, f.revision::text from f where $12::text is not null),
touch as (
  update session_activity a set updated_at = now() from f where a.tenant_id = $1 and a.session_id = $2)
select f.revision, f.next_seq from f
