-- store::commit::restore: after past_prune
update parts p
   set pruned_at_seq = null, tokens = p.original_tokens, original_tokens = null
  from unnest(:marked_messages::text[], :marked_positions::int[]) as u(message, idx)
 where p.tenant_id = :tenant and p.session_id = :session and p.message_id = u.message and p.idx = u.idx and {accepted}
