-- store::queue::start_idle: IDLE -> RUN for a message that waits and asks for it, in a statement of its own, while holding the gate's
-- key-share lock or lock_run. The turn begins without input and before its first step: that step begins when the message is taken, and
-- with it all that waited for the turn before to end.
-- $27 turn $28 owner $29 lease (s) $30 turn timeout (s) $31 revision as read $32 request id or null $33 turn request $34 model
-- $35 the message
with delta as (select coalesce((select sum(t) from unnest($12::int[]) t), 0)
                    + coalesce((select sum(t) from unnest($23::int[]) t), 0) as tokens,
                 ('step_started' = any($3::text[]))::int as first),
f as (
  update session_run r
     set state = 1, owner = $28, epoch = r.epoch + 1, lease_until = now() + make_interval(secs => $29), takeovers = 0, cancel = 0,
         cancel_cause = 0, cancel_reason = '', turn_id = $27, step = delta.first, attempt = delta.first, open_calls = 0, tool_deadline = null,
         turn_deadline = now() + make_interval(secs => $30), next_seq = r.next_seq + cardinality($3::text[]),
         ctx_tokens = r.ctx_tokens + delta.tokens
    from delta
   where r.tenant_id = $1 and r.session_id = $2 and r.state = 0 and r.open_calls = 0 and r.revision = $31
     and exists (select from queue q where q.tenant_id = $1 and q.session_id = $2 and q.message_id = $35 and q.status = 0 and q.starts_turn)
  returning r.epoch, r.op, r.next_seq, r.next_seq - cardinality($3::text[]) as base, r.turn_id, r.ctx_tokens,
            case when r.anchor_version = r.context_version
                 then jsonb_build_object('version', r.anchor_version, 'model', r.anchor_model, 'input', r.anchor_input,
                                         'output', r.anchor_output, 'tokens', r.anchor_tokens, 'cached', r.anchor_cached,
                                         'at', r.anchor_at, 'estimated', r.anchor_estimated, 'basis', r.anchor_basis) end as anchor),
write_turn as (
  insert into turns (tenant_id, session_id, turn_id, request_id, request, model, first_seq, anchor_before)
  select $1, $2, $27, $32, $33::bytea, $34, f.base, f.anchor from f),
admit_waiting as (
  update queue q set delivery = 1
    from f where q.tenant_id = $1 and q.session_id = $2 and q.status = 0 and q.delivery = 2),
touch as (
  update session_activity a set updated_at = now() from f where a.tenant_id = $1 and a.session_id = $2)
