-- store::commit::session: writes the session, unless it was written since it was read. Where a request is remembered, its key must not belong to
-- another request, nor to this one where it must be new. Only times are the database's.
update session_run r
   set version = :new_version, state = :state, epoch = :new_epoch, op = :new_op, written_by = :written_by, owner = :new_owner, takeovers = :takeovers, cancel = :cancel,
       cancel_cause = :cancel_cause, cancel_reason = :cancel_reason, turn_id = :new_turn, step = :step, attempt = :attempt, open_calls = :open_calls,
       next_seq = :next_seq, context_version = :context_version, ctx_messages = :ctx_messages, ctx_overhead = :ctx_overhead,
       ctx_tokens = :ctx_tokens, ctx_parts = :ctx_parts, anchor_model = :anchor_model, anchor_version = :anchor_version,
       anchor_input = :anchor_input, anchor_output = :anchor_output, anchor_tokens = :anchor_tokens, anchor_cached = :anchor_cached,
       anchor_estimated = :anchor_estimated, anchor_basis = :anchor_basis,
       anchor_at = case when :measured::boolean then now() else coalesce(:measured_at::timestamptz, r.anchor_at) end, growth = :growth,
       revision = :revision::bigint,
       turn_deadline = coalesce(now() + make_interval(secs => :turn_ends_within::float8), r.turn_deadline),
       lease_until = coalesce(now() + make_interval(secs => :lease::float8), r.lease_until),
       tool_deadline = least(:wake_at::timestamptz, now() + make_interval(secs => :wake_within::float8))
 where r.tenant_id = :tenant and r.session_id = :session and r.version = :version
   and not exists (select from idempotency i where i.tenant_id = :tenant and i.session_id = :session
                                              and i.request_id = :request_id and (:request_is_new or i.req_hash <> :request_hash))
returning {accept}, r.tool_deadline, r.turn_deadline, now() as written_at
