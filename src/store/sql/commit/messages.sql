-- store::commit::messages
insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, pinned, info)
select :tenant, :session, :first_seq::bigint + u.event - 1, u.id, :turn, u.role, u.step, u.tokens, u.pinned, u.info
  from unnest(:message_events::int[], :message_ids::text[], :message_roles::smallint[], :message_steps::int[], :message_tokens::int[],
              :message_pinned::boolean[], :message_infos::bytea[])
         as u(event, id, role, step, tokens, pinned, info)
 where {accepted}
