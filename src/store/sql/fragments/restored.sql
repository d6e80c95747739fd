(select p.message_id, p.idx, p.tokens, p.original_tokens
           from unnest(:messages::text[], :positions::int[]) as u(message, idx)
           join lateral (select * from parts p
                          where p.tenant_id = :tenant and p.session_id = :session and p.message_id = u.message and p.idx = u.idx
                            and p.pruned_at_seq = :pruned_at offset 0) p on true)
