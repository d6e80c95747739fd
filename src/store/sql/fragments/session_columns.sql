-- The hot row and the queue as a change is decided by them, with the version that a commit compares: whoever writes the queue writes the row.
r.version, r.state, r.epoch, r.op, r.written_by, r.owner, r.lease_until < now() as lease_is_over, r.takeovers, r.cancel,
       r.cancel_cause, r.cancel_reason, r.turn_id, r.step, r.attempt, r.open_calls, r.tool_deadline, r.turn_deadline, r.next_seq, r.revision,
       {counter_columns}, r.anchor_model, r.anchor_version, r.anchor_input, r.anchor_output, r.anchor_tokens, r.anchor_cached, r.anchor_estimated,
       r.anchor_basis, r.growth, r.context_version,
       (select json_build_array(c.compaction_id, c.context_version, c.lease_until < now())::text
          from compactions c where c.tenant_id = :tenant and c.session_id = :session and c.status = 1) as compaction,
       (select json_agg(json_build_array(q.message_id, q.delivery, q.starts_turn, q.from_execute, q.expires_at) order by q.pos)::text
          from queue q where q.tenant_id = :tenant and q.session_id = :session and q.status = 0) as queue
