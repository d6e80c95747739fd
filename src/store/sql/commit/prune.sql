-- store::commit::prune: each costs as much as its placeholder from now on
update parts p
   set pruned_at_seq = :next_seq::bigint - 1, original_tokens = p.tokens, tokens = :placeholder::int
  from unnest(:marked_messages::text[], :marked_positions::int[]) as u(message, idx)
 where p.tenant_id = :tenant and p.session_id = :session and p.message_id = u.message and p.idx = u.idx and {accepted}
