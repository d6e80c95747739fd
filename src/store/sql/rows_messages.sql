-- store::rows::messages: after the update or insert of the hot row; an end of the turn has one event more than `kinds`
insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, pinned, info)
select r.tenant_id, r.session_id, r.next_seq - cardinality(:kinds::text[]) - case r.state when 0 then 1 else 0 end + u.n - 1, u.id, r.turn_id, u.role, u.step, u.tokens, u.pinned, u.info
  from session_run r, unnest(:message_events::int[], :message_ids::text[], :message_roles::smallint[], :message_steps::int[],
                             :message_tokens::int[], :message_pinned::boolean[], :message_infos::bytea[])
                      as u(n, id, role, step, tokens, pinned, info)
 where r.tenant_id = :tenant and r.session_id = :session
