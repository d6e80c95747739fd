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
