state = 1, owner = :owner, epoch = r.epoch + 1, lease_until = now() + make_interval(secs => :lease), takeovers = 0, cancel = 0,
       cancel_cause = 0, cancel_reason = '', turn_id = :turn, step = n.first, attempt = n.first, open_calls = 0, tool_deadline = null,
       turn_deadline = now() + make_interval(secs => :timeout), next_seq = r.next_seq + cardinality(:kinds::text[]),
       ctx_tokens = r.ctx_tokens + n.delta
