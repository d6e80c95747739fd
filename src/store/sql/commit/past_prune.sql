-- store::commit::past_prune: the prune stays known, for views as of a seq before the return
insert into past_prunes (tenant_id, session_id, message_id, idx, pruned_at_seq, restored_at_seq, tokens)
select :tenant, :session, p.message_id, p.idx, :pruned_at::bigint, :next_seq::bigint - 1, p.tokens
  from unnest(:marked_messages::text[], :marked_positions::int[]) as u(message, idx)
  join lateral (select * from parts p
                 where p.tenant_id = :tenant and p.session_id = :session and p.message_id = u.message and p.idx = u.idx offset 0) p on true
 where {accepted}
