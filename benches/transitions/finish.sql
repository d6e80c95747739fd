-- store::turn::finish: the last step, behind the gate and after lock_run, so that what it lists as waiting is what waits. Commits its message in any case; ends the turn only if no message waits
-- for it and nobody cancelled.
-- $27 to $35 as in append $36 step count $37 final message $38 payload of turn_completed $39 outcome $40 lease (s)
-- $41 what the call measured, as in append $42 owner $43 turn
with delta as (select coalesce((select sum(t) from unnest($12::int[]) t), 0)
                    + coalesce((select sum(t) from unnest($23::int[]) t), 0) as tokens),
waiting as (select exists (select from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0 and q.delivery <> 2) as more),
f as (
  update session_run r
     set op = r.op + 1, written_by = $42, ctx_tokens = r.ctx_tokens + delta.tokens, takeovers = 0,
         anchor_version = coalesce(($41::bigint[])[1], r.anchor_version), anchor_input = coalesce(($41::bigint[])[2]::int, r.anchor_input),
         anchor_output = coalesce(($41::bigint[])[3]::int, r.anchor_output), anchor_tokens = coalesce(($41::bigint[])[4], r.anchor_tokens),
         anchor_cached = coalesce(($41::bigint[])[5]::int, r.anchor_cached), anchor_estimated = coalesce(($41::bigint[])[6]::int, r.anchor_estimated),
         anchor_basis = coalesce(($41::bigint[])[7]::smallint, r.anchor_basis),
         anchor_model = case when ($41::bigint[]) is null then r.anchor_model else $29 end,
         anchor_at = case when ($41::bigint[]) is null then r.anchor_at else now() end,
         growth = case when r.anchor_model = $29 and r.anchor_version = ($41::bigint[])[1] and ($41::bigint[])[2] >= r.anchor_input
                       then coalesce(0.7 * r.growth + 0.3 * (($41::bigint[])[2] - r.anchor_input), ($41::bigint[])[2] - r.anchor_input) else r.growth end,
         next_seq = r.next_seq + cardinality($3::text[]) + case when w.more or r.cancel <> 0 then 0 else 1 end,
         state = case when w.more or r.cancel <> 0 then 1 else 0 end,
         owner = case when w.more or r.cancel <> 0 then r.owner end,
         lease_until = case when w.more or r.cancel <> 0 then greatest(r.lease_until, now() + make_interval(secs => $40))
                            else '-infinity' end
    from delta, waiting w
   where r.tenant_id = $1 and r.session_id = $2 and r.epoch = $27 and r.op = $28 and r.state = 1 and r.open_calls = 0
     and r.owner = $42 and r.turn_id = $43
  returning r.epoch, r.op, r.next_seq, r.next_seq - cardinality($3::text[]) - case when r.state = 0 then 1 else 0 end as base,
            r.turn_id, r.ctx_tokens, r.state, r.cancel, r.context_version, r.open_calls, r.step, r.attempt),
write_end as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
  select $1, $2, f.next_seq - 1, f.epoch, f.turn_id, f.step, f.attempt, 'turn_completed',
         array(select q.message_id from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0 order by q.pos), $38::bytea
    from f where f.state = 0),
write_turn as (
  update turns t
     set state = case when f.state = 0 then 3 else 1 end, ended_at = case when f.state = 0 then now() end,
         last_seq = case when f.state = 0 then f.next_seq - 1 end, outcome = case when f.state = 0 then $39::bytea end,
         step_count = $36, final_message = coalesce($37, t.final_message), calls = t.calls + $30::bigint,
         input_tokens = t.input_tokens + $31::bigint, output_tokens = t.output_tokens + $32::bigint,
         reasoning_tokens = t.reasoning_tokens + $33::bigint, cache_read_tokens = t.cache_read_tokens + $34::bigint,
         cache_write_tokens = t.cache_write_tokens + $35::bigint
    from f where t.tenant_id = $1 and t.session_id = $2 and t.turn_id = f.turn_id),
touch as (
  update session_activity a set updated_at = now() from f where a.tenant_id = $1 and a.session_id = $2 and f.state = 0)
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
  update session_context c
     set messages = c.messages + g.messages, overhead_tokens = c.overhead_tokens + g.overhead,
         user_tokens = c.user_tokens + g.t1, user_parts = c.user_parts + g.n1,
         assistant_tokens = c.assistant_tokens + g.t2, assistant_parts = c.assistant_parts + g.n2,
         reasoning_tokens = c.reasoning_tokens + g.t3, reasoning_parts = c.reasoning_parts + g.n3,
         tool_call_tokens = c.tool_call_tokens + g.t4, tool_call_parts = c.tool_call_parts + g.n4,
         tool_result_tokens = c.tool_result_tokens + g.t5, tool_result_parts = c.tool_result_parts + g.n5,
         media_tokens = c.media_tokens + g.t6, media_parts = c.media_parts + g.n6,
         pinned_tokens = c.pinned_tokens + g.t8, pinned_parts = c.pinned_parts + g.n8
    from f, grown g
   where c.tenant_id = $1 and c.session_id = $2)
, write_usage as (
  insert into usage_totals as u (tenant_id, session_id, purpose, model, calls, input_tokens, output_tokens, reasoning_tokens,
                                 cache_read_tokens, cache_write_tokens)
  select $1, $2, 1, $29, $30::bigint, $31::bigint, $32::bigint, $33::bigint, $34::bigint, $35::bigint from f where $30::bigint > 0
  on conflict (tenant_id, session_id, purpose, model) do update
     set calls = u.calls + excluded.calls, input_tokens = u.input_tokens + excluded.input_tokens,
         output_tokens = u.output_tokens + excluded.output_tokens, reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens,
         cache_read_tokens = u.cache_read_tokens + excluded.cache_read_tokens,
         cache_write_tokens = u.cache_write_tokens + excluded.cache_write_tokens)
, drop_chunks as (
  delete from partial_chunks p using f where p.tenant_id = $1 and p.session_id = $2 and p.epoch <= f.epoch)
 select f.state, f.cancel, f.next_seq from f
