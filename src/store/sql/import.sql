-- store::import::import: a host's own messages after an idle session's transcript, if it is as it was looked at. Fence and turn are
-- untouched. What is only added at the end leaves the anchor of the size true.
-- $27 context version $28 epoch $29 op, all as seen $30 request id or null $31 hash $32 what it led to $33 open calls after it
-- messages: $34 the ordinal of each one's event $35 ids $36 roles $37 overhead tokens $38 pinned $39 infos $40 times or null
-- calls they make: $41 ids $42 tools $43 messages $44 parts $45 result messages, or '' $46 result parts
-- calls that were open, and are answered: $47 ids $48 result messages $49 result parts
-- whole outputs and the media of results: $50 messages $51 parts $52 blobs
-- changes by category: $53 messages $54 overhead $55 tokens $56 parts
with shift as (select $53::int as messages, $54::bigint as overhead, $55::bigint[] as tokens, $56::int[] as parts),
f as (
  update session_run r
     set next_seq = r.next_seq + cardinality($3::text[]), context_version = r.context_version + 1, open_calls = $33::int,
         ctx_tokens = r.ctx_tokens + s.overhead + (select sum(t) from unnest(s.tokens[1:8]) t),
         anchor_version = r.anchor_version + case when r.anchor_version = r.context_version then 1 else 0 end
    from shift s
   where r.tenant_id = $1 and r.session_id = $2 and r.state = 0
     and r.context_version = $27 and r.epoch = $28 and r.op = $29
     and ($30::text is null
          or not exists (select from idempotency i where i.tenant_id = $1 and i.session_id = $2 and i.request_id = $30))
  returning r.epoch, r.next_seq, r.next_seq - cardinality($3::text[]) as base, null::text as turn_id, r.ctx_tokens),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select $1, $2, $30, $31, $32 from f where $30::text is not null),
write_appended as (
  insert into messages (tenant_id, session_id, seq, message_id, role, step, tokens, pinned, created_at, info, behind)
  select $1, $2, f.base + u.n - 1, u.id, u.role, 0, u.tokens, u.pinned, coalesce(u.at, now()), u.info,
         case when u.n = 1 then 1 + $27::bigint + $28::bigint + $29::bigint end
    from f, unnest($34::int[], $35::text[], $36::smallint[], $37::int[], $38::boolean[], $39::bytea[], $40::timestamptz[])
            as u(n, id, role, tokens, pinned, info, at)),
-- They are not requested: they belong to no turn, wait without a deadline (1), and their results are appended as well.
write_calls as (
  insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id,
                          ord, timeout, closed_at)
  select $1, $2, u.id, '', 0, case when u.result = '' then 1 else 3 end, u.name, u.message, u.part, u.result, u.ord, '0',
         case when u.result <> '' then now() end
    from f, unnest($41::text[], $42::text[], $43::text[], $44::int[], $45::text[], $46::int[]) as u(id, name, message, part, result, ord)),
close_calls as (
  update tool_calls c set status = 3, closed_at = now(), closed_by = $30, result_message_id = u.result, ord = u.ord
    from f, unnest($47::text[], $48::text[], $49::int[]) as u(id, result, ord)
   where c.tenant_id = $1 and c.session_id = $2 and c.call_id = u.id),
write_blobs as (
  insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
  select $1, $2, u.message, u.part, u.blob from f, unnest($50::text[], $51::int[], $52::text[]) as u(message, part, blob)),
touch as (
  update session_activity a set updated_at = now() from f where a.tenant_id = $1 and a.session_id = $2)
