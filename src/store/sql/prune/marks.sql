-- store::prune::prune_marks: after all that counts what is left to prune
update parts p
   set pruned_at_seq = r.next_seq - 1, original_tokens = p.tokens, tokens = :placeholder::int
  from session_run r, {pruned} m
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
   and p.tenant_id = :tenant and p.session_id = :session and p.message_id = m.message_id and p.idx = m.idx
