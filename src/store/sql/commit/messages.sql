-- store::commit::messages: a summary belongs to no turn
insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, pinned, is_summary, info)
select :tenant, :session, :first_seq::bigint + u.event - 1, u.id, case when not u.is_summary then :turn end, u.role, u.step, u.tokens, u.pinned,
       u.is_summary, u.info
  from unnest(:message_events::int[], :message_ids::text[], :message_roles::smallint[], :message_steps::int[], :message_tokens::int[],
              :message_pinned::boolean[], :message_summaries::boolean[], :message_infos::bytea[])
         as u(event, id, role, step, tokens, pinned, is_summary, info)
 where {accepted}
