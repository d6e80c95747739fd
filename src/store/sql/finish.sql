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
