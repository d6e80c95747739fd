(select p.message_id, p.idx, p.tokens
           from unnest(:messages::text[], :positions::int[]) as u(message, idx)
           join lateral (select * from parts p
                          where p.tenant_id = :tenant and p.session_id = :session and p.message_id = u.message and p.idx = u.idx
                            and p.kind = 'tool_result' and p.pruned_at_seq is null offset 0) p on true)
