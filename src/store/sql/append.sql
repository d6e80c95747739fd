-- store::turn::append: the owner's append. Others' appends never make it fail: next_seq is not compared.
-- $27 epoch $28 op $29 model $30 to $35 usage: calls, input, output, reasoning, cache read, cache write
-- $36 lease (s) $37 final message or null
-- calls: $38 ids $39 names $40 part positions $41 ordinals $42 timeouts (s) $43 statuses $44 what will ask for those that wait for
-- their turn, or null $45 assistant message $46 result message
-- $47 what the call measured, or null: the context's version that its prompt was made from, input, output, the estimate of both, cached,
-- predicted input, how it was predicted
-- $48 owner $49 turn: a failover that loses commits may grant the same epoch and op again, to another owner or for another turn
-- With calls left open and no cancel the turn waits and the lease is released in the same statement; else the lease is renewed.
with delta as (select coalesce((select sum(t) from unnest($12::int[]) t), 0)
                    + coalesce((select sum(t) from unnest($23::int[]) t), 0) as tokens),
opened as (
  select count(*) filter (where s < 3) as n, min(t) filter (where s < 3 and q is null) as timeout
    from unnest($42::float8[], $43::smallint[], $44::bytea[]) as u(t, s, q)),
f as (
  update session_run r
     set op = r.op + 1, written_by = $48, next_seq = r.next_seq + cardinality($3::text[]), ctx_tokens = r.ctx_tokens + delta.tokens,
         anchor_version = coalesce(($47::bigint[])[1], r.anchor_version), anchor_input = coalesce(($47::bigint[])[2]::int, r.anchor_input),
         anchor_output = coalesce(($47::bigint[])[3]::int, r.anchor_output), anchor_tokens = coalesce(($47::bigint[])[4], r.anchor_tokens),
         anchor_cached = coalesce(($47::bigint[])[5]::int, r.anchor_cached), anchor_estimated = coalesce(($47::bigint[])[6]::int, r.anchor_estimated),
         anchor_basis = coalesce(($47::bigint[])[7]::smallint, r.anchor_basis),
         anchor_model = case when ($47::bigint[]) is null then r.anchor_model else $29 end,
         anchor_at = case when ($47::bigint[]) is null then r.anchor_at else now() end,
         growth = case when r.anchor_model = $29 and r.anchor_version = ($47::bigint[])[1] and ($47::bigint[])[2] >= r.anchor_input
                       then coalesce(0.7 * r.growth + 0.3 * (($47::bigint[])[2] - r.anchor_input), ($47::bigint[])[2] - r.anchor_input) else r.growth end,
         takeovers = 0, open_calls = r.open_calls + opened.n,
         tool_deadline = case when opened.n > 0 then least(now() + make_interval(secs => opened.timeout), r.turn_deadline)
                              else r.tool_deadline end,
         state = case when r.cancel = 0 and r.open_calls + opened.n > 0 then 2 else 1 end,
         owner = case when r.cancel = 0 and r.open_calls + opened.n > 0 then null else r.owner end,
         lease_until = case when r.cancel = 0 and r.open_calls + opened.n > 0 then '-infinity'
                            else greatest(r.lease_until, now() + make_interval(secs => $36)) end
    from delta, opened
   where r.tenant_id = $1 and r.session_id = $2 and r.epoch = $27 and r.op = $28 and r.state = 1
     and r.owner = $48 and r.turn_id = $49
  returning r.epoch, r.op, r.next_seq, r.next_seq - cardinality($3::text[]) as base, r.turn_id, r.ctx_tokens, r.state, r.cancel,
            r.context_version, r.open_calls, r.step),
write_calls as (
  insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id,
                          ord, timeout, requested_at, deadline, request, closed_at)
  select $1, $2, u.id, f.turn_id, f.step, u.status, u.name, $45, u.part, $46, u.ord, make_interval(secs => u.timeout),
         case when u.request is null then now() end, case when u.request is null then now() + make_interval(secs => u.timeout) end,
         u.request, case when u.status >= 3 then now() end
    from f, unnest($38::text[], $39::text[], $40::int[], $41::int[], $42::float8[], $43::smallint[], $44::bytea[])
              as u(id, name, part, ord, timeout, status, request)),
write_turn as (
  update turns t
     set step_count = f.step, final_message = coalesce($37, t.final_message), calls = t.calls + $30::bigint,
         input_tokens = t.input_tokens + $31::bigint, output_tokens = t.output_tokens + $32::bigint,
         reasoning_tokens = t.reasoning_tokens + $33::bigint, cache_read_tokens = t.cache_read_tokens + $34::bigint,
         cache_write_tokens = t.cache_write_tokens + $35::bigint
    from f where t.tenant_id = $1 and t.session_id = $2 and t.turn_id = f.turn_id)
