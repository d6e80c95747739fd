-- Commits a change of a session in one statement: writes the session row, if its version is still the one that was read, and the other
-- rows of the change. The function decides nothing: the program names the statements to run in `_wanted` and passes all values. Values of
-- one type are elements of one array (`_texts` and so on). The rows of a table are passed as one array per column. To change the function,
-- add one with the next number in a new migration: during an upgrade, programs of both versions run at the same time.
-- oldest-program: 1
create function contextd_commit_1(
  _wanted text[], _tenant text, _session text, _turn text, _version bigint, _new_version bigint, _new_epoch bigint, _first_seq bigint,
  _next_seq bigint, _context_version bigint, _revision bigint, _state smallint, _step int, _estimator text, _request_id text,
  _request_hash text, _lease float8, _texts text[], _small smallint[], _ints int[], _bigs bigint[], _flags boolean[], _reals float8[],
  _times timestamptz[], _bytes bytea[], _ctx_tokens bigint[], _ctx_parts int[], _refs text[], _ref_events int[], _event_kinds text[],
  _event_payloads bytea[], _event_sizes bigint[], _event_steps int[], _event_attempts int[], _event_of_turn boolean[],
  _message_events int[], _message_ids text[], _message_roles smallint[], _message_steps int[], _message_tokens int[],
  _message_pinned boolean[], _message_summaries boolean[], _message_times timestamptz[], _message_infos bytea[], _message_behind bigint[],
  _part_messages text[], _part_positions int[], _part_kinds text[], _part_calls text[], _part_names text[], _part_outcomes smallint[],
  _part_bodies text[], _part_rests bytea[], _part_tokens int[], _part_categories smallint[], _blob_messages text[], _blob_positions int[],
  _blobs text[], _closed_calls text[], _closed_statuses smallint[], _hashes text[], _asked_calls text[], _asked_statuses smallint[],
  _edits text[], _call_ids text[], _call_names text[], _call_parts int[], _call_ords int[], _call_timeouts float8[],
  _call_statuses smallint[], _call_requests bytea[], _call_closed boolean[], _call_executors smallint[], _leaving text[],
  _leaving_statuses smallint[], _leaving_events int[], _leaving_into text[], _drop_reasons smallint[], _hurried text[], _calmed text[],
  _imported_calls text[], _imported_names text[], _imported_messages text[], _imported_parts int[], _imported_results text[],
  _imported_positions int[], _answered_calls text[], _answered_messages text[], _answered_positions int[], _marked_messages text[],
  _marked_positions int[], _kept bigint[], _applied_tokens bigint[], _applied_parts int[], _reverted text[], _labels bytea[],
  out written_at timestamptz, out tool_deadline timestamptz, out turn_deadline timestamptz, out totals bigint[],
  out enqueued_at timestamptz, out expires_at timestamptz
) language plpgsql as $$
-- _texts: 1 written_by, 2 new_owner, 3 cancel_reason, 4 new_turn, 5 anchor_model, 6 source, 7 led, 8 submission, 9 calls_message,
-- 10 results_message, 11 final_message, 12 turn_model, 13 asked_by, 14 asked_model, 15 trace, 16 queued, 17 queued_by, 18 model,
-- 19 described, 20 failed_compaction, 21 begun_compaction, 22 moved_compaction, 23 predecessor, 24 summary, 25 applied_compaction,
-- 26 toolset, 27 tools_estimator, 28 title
-- _small: 1 takeovers, 2 cancel, 3 cancel_cause, 4 anchor_basis, 5 turn_state, 6 queued_delivery, 7 asap, 8 purpose
-- _ints: 1 attempt, 2 open_calls, 3 ctx_messages, 4 anchor_input, 5 anchor_output, 6 anchor_cached, 7 anchor_estimated, 8 step_count,
-- 9 placeholder, 10 applied_messages, 11 tools_tokens
-- _bigs: 1 new_op, 2 ctx_overhead, 3 anchor_version, 4 anchor_tokens, 5 epoch, 6 at, 7 turn_last_seq, 8 calls, 9 input_tokens,
-- 10 output_tokens, 11 reasoning_tokens, 12 cache_read_tokens, 13 cache_write_tokens, 14 copied_after, 15 copied_up_to, 16 pruned_at,
-- 17 moved_to, 18 from_seq, 19 to_seq, 20 applied_overhead, 21 reverted_at
-- _flags: 1 measured, 2 request_is_new, 3 starts_turn, 4 from_execute, 5 hides_pinned, 6 configures, 7 is_hidden
-- _reals: 1 growth, 2 turn_ends_within, 3 wake_within, 4 ttl, 5 compaction_lease, 6 expires_after
-- _times: 1 measured_at, 2 wake_at, 3 known_at
-- _bytes: 1 turn_request, 2 outcome, 3 asked, 4 queued_body, 5 execute, 6 description, 7 failed_info, 8 begun_info, 9 applied_info,
-- 10 tools, 11 config
begin
  -- session: writes the session row, unless it was written since it was read. If the commit stores an idempotency key, the key must not
  -- belong to another request, nor to this one if the request must be new. Only times come from the database.
  if 'session' = any (_wanted) then
    update session_run r
       set version = _new_version, state = _state, epoch = _new_epoch, op = _bigs[1], written_by = _texts[1], owner = _texts[2],
           takeovers = _small[1], cancel = _small[2],
           cancel_cause = _small[3], cancel_reason = _texts[3], turn_id = _texts[4], step = _step, attempt = _ints[1], open_calls = _ints[2],
           next_seq = _next_seq, context_version = _context_version, ctx_messages = _ints[3], ctx_overhead = _bigs[2],
           ctx_tokens = _ctx_tokens, ctx_parts = _ctx_parts, anchor_model = _texts[5], anchor_version = _bigs[3],
           anchor_input = _ints[4], anchor_output = _ints[5], anchor_tokens = _bigs[4], anchor_cached = _ints[6],
           anchor_estimated = _ints[7], anchor_basis = _small[4],
           anchor_at = case when _flags[1] then now() else coalesce(_times[1], r.anchor_at) end, growth = _reals[1],
           revision = _revision,
           turn_deadline = coalesce(now() + make_interval(secs => _reals[2]), r.turn_deadline),
           lease_until = coalesce(now() + make_interval(secs => _lease), r.lease_until),
           tool_deadline = least(_times[2], now() + make_interval(secs => _reals[3]))
     where r.tenant_id = _tenant and r.session_id = _session and r.version = _version
       and not exists (select from idempotency i where i.tenant_id = _tenant and i.session_id = _session
                                                  and i.request_id = _request_id and (_flags[2] or i.req_hash <> _request_hash))
    returning r.tool_deadline, r.turn_deadline, now() into tool_deadline, turn_deadline, written_at;

  -- new_run: writes nothing if the session exists, a deleted session has its id, the last epoch of a deleted session is not the one
  -- that was read, the request is known, or the tenant is being deleted or was deleted since the call was admitted. Only times come
  -- from the database.
  elsif 'new_run' = any (_wanted) then
    insert into session_run as r (tenant_id, session_id, version, state, epoch, op, owner, turn_id, step, attempt, next_seq, context_version,
                                  ctx_messages, ctx_overhead, ctx_tokens, ctx_parts, revision, turn_deadline, lease_until)
    select _tenant, _session, _new_version, _state, _new_epoch, _bigs[1], _texts[2], _texts[4], _step, _ints[1],
           _next_seq, _context_version, _ints[3], _bigs[2], _ctx_tokens, _ctx_parts, _revision,
           now() + make_interval(secs => _reals[2]), coalesce(now() + make_interval(secs => _lease), now())
     where not exists (select from tenant_deletions d
                 where d.tenant_id = _tenant and (d.done_at is null or d.done_at > _times[3]))
       and _bigs[5] = coalesce((select i.result::bigint from idempotency i
                                       where i.tenant_id = _tenant and i.session_id = _session and i.request_id = ''), 0)
       and not exists (select from idempotency i where i.tenant_id = _tenant and i.session_id = _session and i.request_id = _request_id)
    on conflict do nothing
    returning r.tool_deadline, r.turn_deadline, now() into tool_deadline, turn_deadline, written_at;
  end if;

  -- Nothing is written if the session was written since it was read, or exists already.
  if not found then
    return;
  end if;

  -- A session is created or configured.
  if _wanted && array['new_session', 'new_activity', 'toolset', 'revision'] then
    -- new_session
    if 'new_session' = any (_wanted) then
      insert into sessions (tenant_id, session_id, forked_from, forked_at_seq)
      select _tenant, _session, _texts[6], _bigs[6];
    end if;

    -- new_activity: a fork that is still being copied sorts after all other sessions in the order of use
    if 'new_activity' = any (_wanted) then
      insert into session_activity (tenant_id, session_id, updated_at, ttl)
      select _tenant, _session, case when _flags[7] then '-infinity' else now() end, make_interval(secs => _reals[6]);
    end if;

    -- toolset
    if 'toolset' = any (_wanted) then
      insert into toolsets (tenant_id, toolset_id, tools, tokens, estimator)
      select _tenant, _texts[26], _bytes[10], _ints[11], _texts[27]
      on conflict do nothing;
    end if;

    -- revision
    if 'revision' = any (_wanted) then
      insert into session_revisions (tenant_id, session_id, revision, toolset_id, config, labels, title)
      select _tenant, _session, _revision, _texts[26], _bytes[11], _labels, _texts[28];
    end if;
  end if;

  -- request: the result of the request with this key. Every commit that stores a request also writes the session row, so the statement
  -- above has seen an earlier request with this key.
  if 'request' = any (_wanted) then
    insert into idempotency as i (tenant_id, session_id, request_id, req_hash, result)
    select _tenant, _session, _request_id, _request_hash, _texts[7]
    on conflict (tenant_id, session_id, request_id) do update set result = excluded.result where i.req_hash = excluded.req_hash;
  end if;

  -- events
  if 'events' = any (_wanted) then
    insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
    select _tenant, _session, _first_seq + u.n - 1, _new_epoch, case when u.of_turn then _turn end, u.step, u.attempt, u.kind,
           array(select f.ref from unnest(_refs, _ref_events) with ordinality as f(ref, event, k) where f.event = u.n order by f.k),
           u.size, u.payload
      from unnest(_event_kinds, _event_payloads, _event_sizes, _event_steps, _event_attempts,
                  _event_of_turn) with ordinality as u(kind, payload, size, step, attempt, of_turn, n);
  end if;

  -- messages: a summary belongs to no turn. The first message of those that a host appends has the version of the transcript that they
  -- follow
  if 'messages' = any (_wanted) then
    insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, pinned, is_summary, created_at, info, behind)
    select _tenant, _session, _first_seq + u.event - 1, u.id, case when not u.is_summary then _turn end, u.role, u.step, u.tokens, u.pinned,
           u.is_summary, coalesce(u.at, now()), u.info, u.behind
      from unnest(_message_events, _message_ids, _message_roles, _message_steps, _message_tokens,
                  _message_pinned, _message_summaries, _message_times, _message_infos,
                  _message_behind)
             as u(event, id, role, step, tokens, pinned, is_summary, at, info, behind);
  end if;

  -- parts
  if 'parts' = any (_wanted) then
    insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator)
    select _tenant, _session, u.message, u.idx, u.kind, u.call, u.name, u.outcome, u.body, u.rest, u.tokens, u.category, _estimator
      from unnest(_part_messages, _part_positions, _part_kinds, _part_calls, _part_names,
                  _part_outcomes, _part_bodies, _part_rests, _part_tokens, _part_categories)
             as u(message, idx, kind, call, name, outcome, body, rest, tokens, category);
  end if;

  -- Less frequent: media, tool calls, the queue, reports of model calls that the host made, and partial text.
  if _wanted && array['media', 'close_calls', 'ask_calls', 'new_calls', 'queued', 'leave_queue', 'hurry', 'calm', 'message_info', 'drop_partial'] then
    -- media: the blobs that parts refer to, including complete tool outputs
    if 'media' = any (_wanted) then
      insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
      select _tenant, _session, u.message, u.idx, u.blob
        from unnest(_blob_messages, _blob_positions, _blobs) as u(message, idx, blob);
    end if;

    -- close_calls
    if 'close_calls' = any (_wanted) then
      update tool_calls c
         set status = u.status, closed_at = now(), closed_by = _request_id, answer_hash = u.hash
        from unnest(_closed_calls, _closed_statuses, _hashes) as u(call, status, hash)
       where c.tenant_id = _tenant and c.session_id = _session and c.call_id = u.call;
    end if;

    -- ask_calls: starts the timeouts of the calls. `submission` identifies this commit in the calls that it hands out.
    if 'ask_calls' = any (_wanted) then
      update tool_calls c
         set status = u.status, requested_at = now(), deadline = now() + c.timeout, request = null, requested_by = _texts[8],
             edited_arguments = coalesce(u.edited, c.edited_arguments)
        from unnest(_asked_calls, _asked_statuses, _edits) as u(call, status, edited)
       where c.tenant_id = _tenant and c.session_id = _session and c.call_id = u.call;
    end if;

    -- new_calls: calls that are not requested yet have no deadline. They store the event that will request them
    if 'new_calls' = any (_wanted) then
      insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id,
                              ord, timeout, requested_at, deadline, request, closed_at, executor)
      select _tenant, _session, u.id, _turn, _step, u.status, u.name, _texts[9], u.part, _texts[10], u.ord,
             make_interval(secs => u.timeout), case when u.request is null then now() end,
             case when u.request is null then now() + make_interval(secs => u.timeout) end, u.request, case when u.closed then now() end, u.executor
        from unnest(_call_ids, _call_names, _call_parts, _call_ords, _call_timeouts,
                    _call_statuses, _call_requests, _call_closed, _call_executors)
               as u(id, name, part, ord, timeout, status, request, closed, executor);
    end if;

    -- queued: the message that is added to the queue
    if 'queued' = any (_wanted) then
      insert into queue as q (tenant_id, session_id, message_id, body, delivery, starts_turn, from_execute, request, expires_at, request_id)
      select _tenant, _session, _texts[16], _bytes[4], _small[6], _flags[3], _flags[4],
             _bytes[5], now() + make_interval(secs => _reals[4]), _texts[17]
      returning q.enqueued_at, q.expires_at into enqueued_at, expires_at;
    end if;

    -- leave_queue: messages that leave the queue, each with the event that reports it
    if 'leave_queue' = any (_wanted) then
      update queue q
         set status = u.status, seq = _first_seq + u.event, ended_at = now(), applied_to = u.target, drop_reason = u.reason
        from unnest(_leaving, _leaving_statuses, _leaving_events, _leaving_into, _drop_reasons)
               as u(id, status, event, target, reason)
       where q.tenant_id = _tenant and q.session_id = _session and q.message_id = u.id;
    end if;

    -- hurry: messages that waited for the previous turn to end
    if 'hurry' = any (_wanted) then
      update queue q
         set delivery = _small[7]
       where q.tenant_id = _tenant and q.session_id = _session and q.message_id = any(_hurried);
    end if;

    -- calm: messages that no longer start a turn
    if 'calm' = any (_wanted) then
      update queue q
         set starts_turn = false
       where q.tenant_id = _tenant and q.session_id = _session and q.message_id = any(_calmed);
    end if;

    -- message_info: what is stored about a model call that the host made
    if 'message_info' = any (_wanted) then
      update messages m
         set info = _bytes[6]
       where m.tenant_id = _tenant and m.session_id = _session and m.message_id = _texts[19];
    end if;

    -- drop_partial: the streamed text of a message is now committed or voided
    if 'drop_partial' = any (_wanted) then
      delete from partial_chunks p
       where p.tenant_id = _tenant and p.session_id = _session and p.epoch <= _new_epoch;
    end if;
  end if;

  -- turn: the columns of the turn row that a write of the owner changes
  if 'turn' = any (_wanted) then
    update turns t
       set step_count = coalesce(_ints[8], t.step_count), final_message = coalesce(_texts[11], t.final_message),
           request = coalesce(_bytes[1], t.request), model = coalesce(_texts[12], t.model),
           state = coalesce(_small[5], t.state), outcome = coalesce(_bytes[2], t.outcome),
           ended_at = case when _small[5] is null then t.ended_at else now() end,
           last_seq = coalesce(_bigs[7], t.last_seq),
           calls = t.calls + _bigs[8],
           input_tokens = t.input_tokens + _bigs[9], output_tokens = t.output_tokens + _bigs[10],
           reasoning_tokens = t.reasoning_tokens + _bigs[11],
           cache_read_tokens = t.cache_read_tokens + _bigs[12],
           cache_write_tokens = t.cache_write_tokens + _bigs[13]
     where t.tenant_id = _tenant and t.session_id = _session and t.turn_id = _turn
    returning array[t.calls, t.input_tokens, t.output_tokens, t.reasoning_tokens, t.cache_read_tokens, t.cache_write_tokens]::bigint[] into totals;
  end if;

  -- new_turn
  if 'new_turn' = any (_wanted) then
    insert into turns (tenant_id, session_id, turn_id, request_id, request, model, trace, first_seq, anchor_before)
    select r.tenant_id, r.session_id, _turn, _texts[13], _bytes[3], _texts[14], _texts[15], _first_seq, case when r.anchor_version = r.context_version
                     then jsonb_build_object('version', r.anchor_version, 'model', r.anchor_model, 'input', r.anchor_input,
                                             'output', r.anchor_output, 'tokens', r.anchor_tokens, 'cached', r.anchor_cached,
                                             'at', r.anchor_at, 'estimated', r.anchor_estimated, 'basis', r.anchor_basis) end
      from session_run r
     where r.tenant_id = _tenant and r.session_id = _session;
  end if;

  -- spend
  if 'spend' = any (_wanted) then
    insert into usage_totals as u (tenant_id, session_id, purpose, model, calls, input_tokens, output_tokens, reasoning_tokens,
                                   cache_read_tokens, cache_write_tokens)
    select _tenant, _session, _small[8], _texts[18], _bigs[8], _bigs[9], _bigs[10], _bigs[11],
           _bigs[12], _bigs[13]
    on conflict (tenant_id, session_id, purpose, model) do update
       set calls = u.calls + excluded.calls, input_tokens = u.input_tokens + excluded.input_tokens,
           output_tokens = u.output_tokens + excluded.output_tokens, reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens,
           cache_read_tokens = u.cache_read_tokens + excluded.cache_read_tokens,
           cache_write_tokens = u.cache_write_tokens + excluded.cache_write_tokens;
  end if;

  -- session_used
  if 'session_used' = any (_wanted) then
    update session_activity a
       set updated_at = now(), ttl = case when _flags[6] then make_interval(secs => _reals[6]) else a.ttl end
     where a.tenant_id = _tenant and a.session_id = _session;
  end if;

  -- Rare: a deletion, a rollback, marks, compactions, forks and appended calls.
  if _wanted && array['gone', 'unlist', 'last_epoch', 'void', 'prune', 'past_prune', 'restore', 'fail_compaction', 'begin_compaction',
      'move_compaction', 'apply_compaction', 'revert_compactions', 'copy_messages', 'copy_parts', 'copy_prunes', 'copy_blobs', 'copy_calls',
      'copy_compactions', 'import_calls', 'import_answers'] then
    -- gone
    if 'gone' = any (_wanted) then
      delete from sessions s
       where s.tenant_id = _tenant and s.session_id = _session;
    end if;

    -- unlist: deleted sessions sort after all others in the order of use
    if 'unlist' = any (_wanted) then
      update session_activity a
         set updated_at = '-infinity'
       where a.tenant_id = _tenant and a.session_id = _session;
    end if;

    -- last_epoch: the last epoch, under a key that no client can send. A later session with the same id begins after it, so that the
    -- fencing epoch of an owner of this session never becomes valid again.
    if 'last_epoch' = any (_wanted) then
      insert into idempotency as i (tenant_id, session_id, request_id, req_hash, result)
      select _tenant, _session, '', '', (_new_epoch)::text
      on conflict (tenant_id, session_id, request_id) do update set result = excluded.result, at = now();
    end if;

    -- void: the messages of a turn that is rolled back, including those that this commit has just written
    if 'void' = any (_wanted) then
      update messages m
         set voided_at_seq = _bigs[7]
        from turns t
       where t.tenant_id = _tenant and t.session_id = _session and t.turn_id = _turn and m.tenant_id = _tenant and m.session_id = _session
         and m.seq between t.first_seq and _bigs[7] and m.turn_id = _turn and m.voided_at_seq is null;
    end if;

    -- prune: from now on each part counts as many tokens as its placeholder
    if 'prune' = any (_wanted) then
      update parts p
         set pruned_at_seq = _next_seq - 1, original_tokens = p.tokens, tokens = _ints[9]
        from unnest(_marked_messages, _marked_positions) as u(message, idx)
       where p.tenant_id = _tenant and p.session_id = _session and p.message_id = u.message and p.idx = u.idx;
    end if;

    -- past_prune: keeps the prune for views as of a seq before the part was restored
    if 'past_prune' = any (_wanted) then
      insert into past_prunes (tenant_id, session_id, message_id, idx, pruned_at_seq, restored_at_seq, tokens)
      select _tenant, _session, p.message_id, p.idx, _bigs[16], _next_seq - 1, p.tokens
        from unnest(_marked_messages, _marked_positions) as u(message, idx)
        join lateral (select * from parts p
                       where p.tenant_id = _tenant and p.session_id = _session and p.message_id = u.message and p.idx = u.idx offset 0) p on true;
    end if;

    -- restore: must follow past_prune, which reads the values that this statement overwrites
    if 'restore' = any (_wanted) then
      update parts p
         set pruned_at_seq = null, tokens = p.original_tokens, original_tokens = null
        from unnest(_marked_messages, _marked_positions) as u(message, idx)
       where p.tenant_id = _tenant and p.session_id = _session and p.message_id = u.message and p.idx = u.idx;
    end if;

    -- fail_compaction
    if 'fail_compaction' = any (_wanted) then
      update compactions c
         set status = 3, lease_until = null, ended_at = now(), info = coalesce(_bytes[7], c.info)
       where c.tenant_id = _tenant and c.session_id = _session and c.compaction_id = _texts[20];
    end if;

    -- begin_compaction
    if 'begin_compaction' = any (_wanted) then
      insert into compactions (tenant_id, session_id, compaction_id, status, lease_until, context_version, begun_at_seq, info)
      select _tenant, _session, _texts[21], 1, now() + make_interval(secs => _reals[5]), _context_version,
             _next_seq - 1, _bytes[8];
    end if;

    -- move_compaction: the compaction in progress now applies to the new version of the context
    if 'move_compaction' = any (_wanted) then
      update compactions c
         set context_version = _bigs[17]
       where c.tenant_id = _tenant and c.session_id = _session and c.compaction_id = _texts[22];
    end if;

    -- apply_compaction: the summary has the seq of compaction_completed, the first event. `kept` lists the seqs of the range that stay
    -- visible. Pinned messages stay visible too, unless `hides_pinned` is set.
    if 'apply_compaction' = any (_wanted) then
      update compactions c
         set status = 2, lease_until = null, ended_at = now(), from_seq = _bigs[18], to_seq = _bigs[19], kept = _kept, hides_pinned = _flags[5],
             active_from_seq = _first_seq, predecessor = _texts[23], summary_message = _texts[24], delta_messages = _ints[10],
             delta_overhead = _bigs[20], delta_tokens = _applied_tokens, delta_parts = _applied_parts, info = _bytes[9]
       where c.tenant_id = _tenant and c.session_id = _session and c.compaction_id = _texts[25];
    end if;

    -- revert_compactions
    if 'revert_compactions' = any (_wanted) then
      update compactions c
         set status = 4, reverted_at_seq = _bigs[21]
       where c.tenant_id = _tenant and c.session_id = _session and c.compaction_id = any(_reverted);
    end if;

    -- copy_messages: one piece of the messages of the source session, as of the seq of the fork
    if 'copy_messages' = any (_wanted) then
      insert into messages (tenant_id, session_id, seq, message_id, turn_id, step, role, tokens, pinned, is_summary, created_at, info, voided_at_seq)
      select _tenant, _session, m.seq, m.message_id, m.turn_id, m.step, m.role, m.tokens, m.pinned, m.is_summary, m.created_at, m.info,
             case when m.voided_at_seq <= _bigs[6] then m.voided_at_seq end
        from messages m
       where m.tenant_id = _tenant and m.session_id = _texts[6] and m.seq > _bigs[14] and m.seq <= _bigs[15];
    end if;

    -- copy_parts
    if 'copy_parts' = any (_wanted) then
      insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator,
                         pruned_at_seq, original_tokens)
      select _tenant, _session, p.message_id, p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest,
          case when p.pruned_at_seq <= _bigs[6] then p.tokens else coalesce(h.tokens, p.original_tokens, p.tokens) end, p.category,
          p.estimator,
             case when p.pruned_at_seq <= _bigs[6] then p.pruned_at_seq else h.pruned_at_seq end,
             case when p.pruned_at_seq <= _bigs[6] or h.pruned_at_seq is not null then coalesce(p.original_tokens, p.tokens) end
        from messages m
        join lateral (select * from parts p
                       where p.tenant_id = _tenant and p.session_id = _texts[6] and p.message_id = m.message_id offset 0) p on true
        left join past_prunes h on h.tenant_id = _tenant and h.session_id = _texts[6] and h.message_id = p.message_id and h.idx = p.idx
                                   and h.pruned_at_seq <= _bigs[6] and h.restored_at_seq > _bigs[6]
       where m.tenant_id = _tenant and m.session_id = _texts[6] and m.seq > _bigs[14] and m.seq <= _bigs[15];
    end if;

    -- copy_prunes
    if 'copy_prunes' = any (_wanted) then
      insert into past_prunes (tenant_id, session_id, message_id, idx, pruned_at_seq, restored_at_seq, tokens)
      select _tenant, _session, h.message_id, h.idx, h.pruned_at_seq, h.restored_at_seq, h.tokens
        from messages m
        join lateral (select * from past_prunes h
                       where h.tenant_id = _tenant and h.session_id = _texts[6] and h.message_id = m.message_id offset 0) h on h.restored_at_seq <= _bigs[6]
       where m.tenant_id = _tenant and m.session_id = _texts[6] and m.seq > _bigs[14] and m.seq <= _bigs[15];
    end if;

    -- copy_blobs: in key order, so that the index by blob is not read
    if 'copy_blobs' = any (_wanted) then
      insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
      select _tenant, _session, b.message_id, b.idx, b.blob_id
        from messages m
        join lateral (select * from part_blobs b
                       where b.tenant_id = _tenant and b.session_id = _texts[6] and b.message_id = m.message_id
                       order by b.idx, b.blob_id offset 0) b on true
       where m.tenant_id = _tenant and m.session_id = _texts[6] and m.seq > _bigs[14] and m.seq <= _bigs[15];
    end if;

    -- copy_calls: only closed calls, like the copied transcript. A client that answers one again gets the error for a late answer.
    if 'copy_calls' = any (_wanted) then
      insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id, ord,
                              timeout, requested_at, deadline, edited_arguments, closed_at, answer_hash)
      select _tenant, _session, c.call_id, c.turn_id, c.step, c.status, c.tool_name, c.message_id, c.part_idx, c.result_message_id, c.ord, c.timeout,
             c.requested_at, c.deadline, c.edited_arguments, c.closed_at, c.answer_hash
        from messages m
        join lateral (select p.call_id from parts p
                       where p.tenant_id = _tenant and p.session_id = _texts[6] and p.message_id = m.message_id
                         and p.kind = 'tool_call' offset 0) p on true
        join lateral (select * from tool_calls c
                       where c.tenant_id = _tenant and c.session_id = _texts[6] and c.call_id = p.call_id offset 0) c
             on c.message_id = m.message_id and c.status >= 3
       where m.tenant_id = _tenant and m.session_id = _texts[6] and m.seq > _bigs[14] and m.seq <= _bigs[15];
    end if;

    -- copy_compactions: the compactions that had been applied, as of the seq of the fork
    if 'copy_compactions' = any (_wanted) then
      insert into compactions (tenant_id, session_id, compaction_id, status, context_version, begun_at_seq, from_seq, to_seq, active_from_seq,
                               kept, hides_pinned, reverted_at_seq, predecessor, summary_message, delta_messages, delta_overhead, delta_tokens,
                               delta_parts, info, created_at, ended_at)
      select _tenant, _session, c.compaction_id, case when c.reverted_at_seq <= _bigs[6] then 4 else 2 end, c.context_version, c.begun_at_seq,
             c.from_seq, c.to_seq, c.active_from_seq, c.kept, c.hides_pinned, case when c.reverted_at_seq <= _bigs[6] then c.reverted_at_seq end,
             c.predecessor, c.summary_message, c.delta_messages, c.delta_overhead, c.delta_tokens, c.delta_parts, c.info, c.created_at, c.ended_at
        from compactions c
       where c.tenant_id = _tenant and c.session_id = _texts[6] and c.status in (2, 4) and c.active_from_seq <= _bigs[6];
    end if;

    -- import_calls: these calls are not requested. They belong to no turn, stay open without a deadline (status 1), and their results
    -- are appended too
    if 'import_calls' = any (_wanted) then
      insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id,
                              ord, timeout, closed_at)
      select _tenant, _session, u.id, '', 0, case when u.result = '' then 1 else 3 end, u.name, u.message, u.part, u.result, u.ord, '0',
             case when u.result <> '' then now() end
        from unnest(_imported_calls, _imported_names, _imported_messages, _imported_parts,
                    _imported_results, _imported_positions)
               as u(id, name, message, part, result, ord);
    end if;

    -- import_answers: open calls whose results are appended
    if 'import_answers' = any (_wanted) then
      update tool_calls c
         set status = 3, closed_at = now(), closed_by = _request_id, result_message_id = u.result, ord = u.ord
        from unnest(_answered_calls, _answered_messages, _answered_positions) as u(id, result, ord)
       where c.tenant_id = _tenant and c.session_id = _session and c.call_id = u.id;
    end if;
  end if;
end $$;
