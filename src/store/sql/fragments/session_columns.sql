-- The hot row as a change is decided by it, with the version that a commit compares.
r.xmin::text as version, r.state, r.epoch, r.op, r.written_by, r.owner, r.lease_until < now() as lease_is_over, r.takeovers, r.cancel,
       r.cancel_cause, r.cancel_reason, r.turn_id, r.step, r.attempt, r.open_calls, r.tool_deadline, r.turn_deadline, r.next_seq, r.revision,
       r.ctx_tokens, r.anchor_model, r.anchor_version, r.anchor_input, r.anchor_output, r.anchor_tokens, r.anchor_cached, r.anchor_estimated,
       r.anchor_basis, r.growth
