-- store::prune::restore_marks: after all that counts what comes back
update parts p
   set pruned_at_seq = null, tokens = p.original_tokens, original_tokens = null
  from {restored} m
 where p.tenant_id = :tenant and p.session_id = :session and {accepted} and p.message_id = m.message_id and p.idx = m.idx
