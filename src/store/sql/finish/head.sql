(select r.tenant_id, r.session_id, r.epoch, r.turn_id, r.step, r.attempt, r.state, r.next_seq,
          r.next_seq - cardinality(:kinds::text[]) - case r.state when 0 then 1 else 0 end as base, r.ctx_tokens
     from session_run r where r.tenant_id = :tenant and r.session_id = :session and {accepted})
