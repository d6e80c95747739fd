-- store::commit::copy_prunes
insert into past_prunes (tenant_id, session_id, message_id, idx, pruned_at_seq, restored_at_seq, tokens)
select :tenant, :session, h.message_id, h.idx, h.pruned_at_seq, h.restored_at_seq, h.tokens
  from messages m
  join lateral (select * from past_prunes h
                 where h.tenant_id = :tenant and h.session_id = :source and h.message_id = m.message_id offset 0) h on h.restored_at_seq <= :at
 where m.tenant_id = :tenant and m.session_id = :source and m.seq > :copied_after and m.seq <= :copied_up_to and {accepted}
