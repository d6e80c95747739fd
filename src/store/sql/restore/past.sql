-- store::prune::restore_past
insert into past_prunes (tenant_id, session_id, message_id, idx, pruned_at_seq, restored_at_seq, tokens)
select r.tenant_id, r.session_id, m.message_id, m.idx, :pruned_at, r.next_seq - 1, m.tokens
  from session_run r, {restored} m
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
