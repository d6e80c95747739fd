, write_events as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
  select :tenant, :session, f.base + u.n - 1, f.epoch, f.turn_id, u.step, u.attempt, u.kind,
         case when u.ref = '' then '{}'::text[] else array[u.ref] end,
         case when u.kind = 'step_started' then f.ctx_tokens + :offset::bigint end, u.payload
    from f, unnest(:kinds::text[], :payloads::bytea[], :refs::text[], :steps::int[], :attempts::int[])
              with ordinality as u(kind, payload, ref, step, attempt, n)),
write_messages as (
  insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, pinned, info)
  select :tenant, :session, f.base + u.n - 1, u.id, f.turn_id, u.role, u.step, u.tokens, u.pinned, u.info
    from f, unnest(:message_events::int[], :message_ids::text[], :message_roles::smallint[], :message_steps::int[],
                   :message_tokens::int[], :message_pinned::boolean[], :message_infos::bytea[])
              as u(n, id, role, step, tokens, pinned, info)),
write_parts as (
  insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator)
  select :tenant, :session, u.message, u.idx, u.kind, u.call, u.name, u.outcome, u.body, u.rest, u.tokens, u.category, :estimator
    from f, unnest(:part_messages::text[], :part_positions::int[], :part_kinds::text[], :part_calls::text[], :part_names::text[],
                   :part_outcomes::smallint[], :part_bodies::text[], :part_rests::bytea[], :part_tokens::int[],
                   :part_categories::smallint[])
              as u(message, idx, kind, call, name, outcome, body, rest, tokens, category)),
-- A medium's body is the blob that holds its content.
write_media as (
  insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
  select :tenant, :session, u.message, u.idx, u.body
    from f, unnest(:part_messages::text[], :part_positions::int[], :part_kinds::text[], :part_bodies::text[])
              as u(message, idx, kind, body)
   where u.kind = 'media')
