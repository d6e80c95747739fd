(select r.tenant_id, r.session_id, r.epoch, case when r.state in (1, 2) then r.turn_id end as turn_id, r.step, r.attempt, r.state,
          r.next_seq, r.next_seq - cardinality(:kinds::text[]) as base, r.ctx_tokens, r.context_version, r.revision
     from session_run r where r.tenant_id = :tenant and r.session_id = :session and {accepted})
