(select r.tenant_id, r.session_id, r.epoch, r.turn_id, r.step, r.attempt, r.next_seq,
          r.next_seq - 1 - o.n - o.batch - cardinality(:kinds::text[]) as base, r.ctx_tokens
     from session_run r, {closing} o where r.tenant_id = :tenant and r.session_id = :session and {accepted})
