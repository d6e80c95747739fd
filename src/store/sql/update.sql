-- store::update::update: after lock_run. A new revision of the configuration, with its events; in force at once for whatever is
-- begun from now on. Whoever owns a turn is not disturbed. 0 rows: deleted, changed since it was read, or a request that is known.
-- $3 revision as read $4 toolset id $5 config $6 tools $7 their tokens $8 estimator
-- $9 kinds of the events $10 payloads $11 request id or null $12 its hash $13 the session's time to live (s) or null
-- The anchor of the size stays: it says for which model it is, and how large it took the system prompt and tools to be.
with f as (
  update session_run r
     set revision = r.revision + 1, next_seq = r.next_seq + cardinality($9::text[])
   where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3 and r.revision = $3
     and ($11::text is null
          or not exists (select from idempotency i where i.tenant_id = $1 and i.session_id = $2 and i.request_id = $11))
  returning r.epoch, r.revision, r.next_seq, r.next_seq - cardinality($9::text[]) as base),
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
    from f, unnest($9::text[], $10::bytea[]) with ordinality as u(kind, payload, n)),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select $1, $2, $11, $12, f.revision::text from f where $11::text is not null),
touch as (
  update session_activity a set updated_at = now(), ttl = make_interval(secs => $13) from f where a.tenant_id = $1 and a.session_id = $2)
select f.revision, f.next_seq from f
