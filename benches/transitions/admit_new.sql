-- A session and its first turn as plain statements of one transaction, in the order in which they are sent. Where the session exists the
-- first one fails for its key, and the transaction with it.
-- session
insert into sessions (tenant_id, session_id) values (:tenant, :session);
-- run
insert into session_run (tenant_id, session_id, state, owner, epoch, lease_until, turn_id, step, attempt, turn_deadline, next_seq,
                         ctx_tokens, revision)
values (:tenant, :session, 1, :owner,
        1 + coalesce((select i.result::bigint from idempotency i
                       where i.tenant_id = :tenant and i.session_id = :session and i.request_id = ''), 0),
        now() + make_interval(secs => :lease), :turn, 1, 1, now() + make_interval(secs => :timeout),
        1 + cardinality(:kinds::text[]), (select coalesce(sum(t), 0) from unnest(:message_tokens::int[]) t) + (select coalesce(sum(t), 0) from unnest(:part_tokens::int[]) t),
        :revision::bigint)
returning epoch, op, turn_id, next_seq;
-- events
insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
select r.tenant_id, r.session_id, 1 + u.n - 1, r.epoch, r.turn_id, u.step, u.attempt, u.kind,
       case when u.ref = '' then '{}'::text[] else array[u.ref] end,
       case when u.kind = 'step_started' then r.ctx_tokens + :offset::bigint end, u.payload
  from session_run r, unnest(:kinds::text[], :payloads::bytea[], :refs::text[], :steps::int[], :attempts::int[])
                      with ordinality as u(kind, payload, ref, step, attempt, n)
 where r.tenant_id = :tenant and r.session_id = :session;
-- messages
insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, pinned, info)
select r.tenant_id, r.session_id, 1 + u.n - 1, u.id, r.turn_id, u.role, u.step, u.tokens, u.pinned, u.info
  from session_run r, unnest(:message_events::int[], :message_ids::text[], :message_roles::smallint[], :message_steps::int[],
                             :message_tokens::int[], :message_pinned::boolean[], :message_infos::bytea[])
                      as u(n, id, role, step, tokens, pinned, info)
 where r.tenant_id = :tenant and r.session_id = :session;
-- parts
insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator)
select r.tenant_id, r.session_id, u.message, u.idx, u.kind, u.call, u.name, u.outcome, u.body, u.rest, u.tokens, u.category, :estimator
  from session_run r, unnest(:part_messages::text[], :part_positions::int[], :part_kinds::text[], :part_calls::text[],
                             :part_names::text[], :part_outcomes::smallint[], :part_bodies::text[], :part_rests::bytea[],
                             :part_tokens::int[], :part_categories::smallint[])
                      as u(message, idx, kind, call, name, outcome, body, rest, tokens, category)
 where r.tenant_id = :tenant and r.session_id = :session;
-- media
insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
select r.tenant_id, r.session_id, u.message, u.idx, u.body
  from session_run r, unnest(:part_messages::text[], :part_positions::int[], :part_kinds::text[], :part_bodies::text[])
                      as u(message, idx, kind, body)
 where u.kind = 'media'
   and r.tenant_id = :tenant and r.session_id = :session;
-- request
insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
values (:tenant, :session, :request_id, :request_hash, :turn);
-- turn
insert into turns (tenant_id, session_id, turn_id, request_id, request, model, first_seq)
values (:tenant, :session, :turn, :request_id, :request::bytea, :model, 1);
-- toolset
insert into toolsets (tenant_id, toolset_id, tools, tokens, estimator)
values (:tenant, :toolset, :tools::bytea, :tools_tokens::int, :estimator)
on conflict do nothing;
-- revision
insert into session_revisions (tenant_id, session_id, revision, toolset_id, config)
values (:tenant, :session, :revision, :toolset, :config::bytea);
-- activity
insert into session_activity (tenant_id, session_id, ttl) values (:tenant, :session, make_interval(secs => :ttl));
-- context
insert into session_context (tenant_id, session_id, messages, overhead_tokens, user_tokens, user_parts, assistant_tokens,
                             assistant_parts, reasoning_tokens, reasoning_parts, tool_call_tokens, tool_call_parts,
                             tool_result_tokens, tool_result_parts, media_tokens, media_parts, pinned_tokens, pinned_parts)
select :tenant, :session, g.messages, g.overhead, g.t1, g.n1, g.t2, g.n2, g.t3, g.n3, g.t4, g.n4, g.t5, g.n5, g.t6, g.n6, g.t8, g.n8
  from (
  select (select count(*) from unnest(:message_ids::text[])) as messages,
         (select coalesce(sum(t), 0) from unnest(:message_tokens::int[]) t) as overhead,
         coalesce(sum(t) filter (where c = 1), 0) as t1, count(*) filter (where c = 1) as n1,
         coalesce(sum(t) filter (where c = 2), 0) as t2, count(*) filter (where c = 2) as n2,
         coalesce(sum(t) filter (where c = 3), 0) as t3, count(*) filter (where c = 3) as n3,
         coalesce(sum(t) filter (where c = 4), 0) as t4, count(*) filter (where c = 4) as n4,
         coalesce(sum(t) filter (where c = 5), 0) as t5, count(*) filter (where c = 5) as n5,
         coalesce(sum(t) filter (where c = 6), 0) as t6, count(*) filter (where c = 6) as n6,
         coalesce(sum(t) filter (where c = 8), 0) as t8, count(*) filter (where c = 8) as n8
    from unnest(:part_tokens::int[], :part_categories::smallint[]) as u(t, c)) g;
