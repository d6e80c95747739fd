-- store::usage::record: what a call of the host's own used, in an idle session whose transcript is as it was looked at.
-- $3 context version $4 epoch $5 op, all as seen $6 request id or null $7 hash $8 what it led to
-- $9 purpose $10 model $11 to $15 usage: input, output, reasoning, cache read, cache write $16 the event's payload
-- $17 the message that the call wrote, or null $18 its info
-- $19 what the call measured, or null: as in append
with f as (
  update session_run r
     set next_seq = r.next_seq + 1,
         anchor_version = case when $19::bigint[] is null then r.anchor_version else r.context_version end,
         anchor_input = coalesce(($19::bigint[])[2]::int, r.anchor_input), anchor_output = coalesce(($19::bigint[])[3]::int, r.anchor_output),
         anchor_tokens = coalesce(($19::bigint[])[4], r.anchor_tokens),
         anchor_cached = coalesce(($19::bigint[])[5]::int, r.anchor_cached), anchor_estimated = coalesce(($19::bigint[])[6]::int, r.anchor_estimated),
         anchor_basis = coalesce(($19::bigint[])[7]::smallint, r.anchor_basis),
         anchor_model = case when $19::bigint[] is null then r.anchor_model else $10 end,
         anchor_at = case when $19::bigint[] is null then r.anchor_at else now() end,
         growth = case when r.anchor_model = $10 and r.anchor_version = r.context_version and ($19::bigint[])[2] >= r.anchor_input
                       then coalesce(0.7 * r.growth + 0.3 * (($19::bigint[])[2] - r.anchor_input), ($19::bigint[])[2] - r.anchor_input) else r.growth end
   where r.tenant_id = $1 and r.session_id = $2 and r.state = 0
     and r.context_version = $3 and r.epoch = $4 and r.op = $5
     and ($6::text is null
          or not exists (select from idempotency i where i.tenant_id = $1 and i.session_id = $2 and i.request_id = $6))
  returning r.epoch, r.next_seq),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select $1, $2, $6, $7, $8 from f where $6::text is not null),
write_usage as (
  insert into usage_totals as u (tenant_id, session_id, purpose, model, calls, input_tokens, output_tokens, reasoning_tokens,
                                 cache_read_tokens, cache_write_tokens)
  select $1, $2, $9::smallint, $10, 1, $11::bigint, $12::bigint, $13::bigint, $14::bigint, $15::bigint from f
  on conflict (tenant_id, session_id, purpose, model) do update
     set calls = u.calls + 1,
         input_tokens = u.input_tokens + excluded.input_tokens, output_tokens = u.output_tokens + excluded.output_tokens,
         reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens,
         cache_read_tokens = u.cache_read_tokens + excluded.cache_read_tokens,
         cache_write_tokens = u.cache_write_tokens + excluded.cache_write_tokens),
write_event as (
  insert into events (tenant_id, session_id, seq, epoch, step, attempt, kind, payload)
  select $1, $2, f.next_seq - 1, f.epoch, 0, 0, 'usage_recorded', $16::bytea from f),
write_info as (
  update messages m set info = $18::bytea
    from f where m.tenant_id = $1 and m.session_id = $2 and m.message_id = $17),
touch as (
  update session_activity a set updated_at = now() from f where a.tenant_id = $1 and a.session_id = $2)
select f.next_seq from f
