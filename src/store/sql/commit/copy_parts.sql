-- store::commit::copy_parts
insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator,
                   pruned_at_seq, original_tokens)
select :tenant, :session, p.message_id, p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest, {tokens_at}, p.category, p.estimator,
       {pruned_seq_at},
       case when p.pruned_at_seq <= :at or h.pruned_at_seq is not null then coalesce(p.original_tokens, p.tokens) end
  from messages m
  join lateral (select * from parts p
                 where p.tenant_id = :tenant and p.session_id = :source and p.message_id = m.message_id offset 0) p on true
  left join past_prunes h on h.tenant_id = :tenant and h.session_id = :source and h.message_id = p.message_id and h.idx = p.idx
                             and h.pruned_at_seq <= :at and h.restored_at_seq > :at
 where m.tenant_id = :tenant and m.session_id = :source and m.seq > :copied_after and m.seq <= :copied_up_to and {accepted}
