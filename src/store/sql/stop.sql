-- store::turn::stop: every end that does not depend on the queue, while holding the gate, after lock_run: it closes the calls that
-- are open, each with a synthetic result, and with them the batch.
-- $27 to $35 as in append $36 step count $37 final message or null $38 terminal kind $39 terminal payload $40 outcome
-- $41 state of the turn $42 words of a synthetic result $43 their tokens $44 overhead of a message
-- $45 payload of tool_call_cancelled (call and tool come from refs) $46 what the call measured, as in append
-- $47 owner $48 turn
with delta as (select coalesce((select sum(t) from unnest($12::int[]) t), 0)
                    + coalesce((select sum(t) from unnest($23::int[]) t), 0) as tokens),
open as (
  select c.call_id, c.tool_name, c.ord, c.result_message_id, c.step, row_number() over (order by c.ord) as k
    from session_run r
    join tool_calls c on c.tenant_id = $1 and c.session_id = $2 and c.turn_id = r.turn_id and c.status < 3
   where r.tenant_id = $1 and r.session_id = $2),
closing as (
  select count(*) as n, min(result_message_id) as message_id, min(step) as step, case when count(*) > 0 then 1 else 0 end as batch from open),
f as (
  update session_run r
     set anchor_version = coalesce(($46::bigint[])[1], r.anchor_version), anchor_input = coalesce(($46::bigint[])[2]::int, r.anchor_input),
         anchor_output = coalesce(($46::bigint[])[3]::int, r.anchor_output), anchor_tokens = coalesce(($46::bigint[])[4], r.anchor_tokens),
         anchor_cached = coalesce(($46::bigint[])[5]::int, r.anchor_cached), anchor_estimated = coalesce(($46::bigint[])[6]::int, r.anchor_estimated),
         anchor_basis = coalesce(($46::bigint[])[7]::smallint, r.anchor_basis),
         anchor_model = case when ($46::bigint[]) is null then r.anchor_model else $29 end,
         anchor_at = case when ($46::bigint[]) is null then r.anchor_at else now() end,
         growth = case when r.anchor_model = $29 and r.anchor_version = ($46::bigint[])[1] and ($46::bigint[])[2] >= r.anchor_input
                       then coalesce(0.7 * r.growth + 0.3 * (($46::bigint[])[2] - r.anchor_input), ($46::bigint[])[2] - r.anchor_input) else r.growth end,
         op = r.op + 1, written_by = $47, state = 0, owner = null, lease_until = '-infinity', open_calls = 0, takeovers = 0,
         next_seq = r.next_seq + cardinality($3::text[]) + o.n + o.batch + 1,
         ctx_tokens = r.ctx_tokens + delta.tokens + o.n * $43::int + o.batch * $44::int
    from delta, closing o
   where r.tenant_id = $1 and r.session_id = $2 and r.epoch = $27 and r.op = $28 and r.state = 1
     and r.owner = $47 and r.turn_id = $48
  returning r.epoch, r.op, r.next_seq, r.next_seq - 1 - o.n - o.batch - cardinality($3::text[]) as base, r.turn_id, r.ctx_tokens,
            r.state, r.cancel, r.context_version, r.open_calls, r.step, r.attempt),
close_calls as (
  update tool_calls c set status = 6, closed_at = now()
    from f, open o where c.tenant_id = $1 and c.session_id = $2 and c.call_id = o.call_id),
write_results as (
  insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, tokens, category, estimator)
  select $1, $2, o.result_message_id, o.ord, 'tool_result', o.call_id, o.tool_name, 5, $42, $43::int, 5, $25 from f, open o),
write_batch as (
  insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, info)
  select $1, $2, f.next_seq - 2, o.message_id, f.turn_id, 4, o.step, $44::int, '' from f, closing o where o.n > 0),
write_closed as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
  select $1, $2, f.next_seq - 2 - c.n + o.k - 1, f.epoch, f.turn_id, f.step, f.attempt, 'tool_call_cancelled',
         array[o.call_id, o.tool_name], $45::bytea from f, closing c, open o
  union all
  select $1, $2, f.next_seq - 2, f.epoch, f.turn_id, f.step, f.attempt, 'message_committed', array[c.message_id], ''::bytea
    from f, closing c where c.n > 0
  union all
  select $1, $2, f.next_seq - 1, f.epoch, f.turn_id, f.step, f.attempt, $38,
         array(select q.message_id from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0 order by q.pos), $39::bytea
    from f),
write_turn as (
  update turns t
     set state = $41::smallint, ended_at = now(), last_seq = f.next_seq - 1, outcome = $40, step_count = $36,
         final_message = coalesce($37, t.final_message), calls = t.calls + $30::bigint,
         input_tokens = t.input_tokens + $31::bigint, output_tokens = t.output_tokens + $32::bigint,
         reasoning_tokens = t.reasoning_tokens + $33::bigint, cache_read_tokens = t.cache_read_tokens + $34::bigint,
         cache_write_tokens = t.cache_write_tokens + $35::bigint
    from f where t.tenant_id = $1 and t.session_id = $2 and t.turn_id = f.turn_id),
touch as (
  update session_activity a set updated_at = now() from f where a.tenant_id = $1 and a.session_id = $2),
unstart as (
  update queue q set starts_turn = false
    from f where q.tenant_id = $1 and q.session_id = $2 and q.status = 0 and q.starts_turn and not q.from_execute
             and q.delivery <> 3 and $41 in (4, 5))
