-- store::rows::messages
insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, pinned, is_summary, info)
select r.tenant_id, r.session_id, r.base + u.n - 1, u.id, r.turn_id, u.role, u.step, u.tokens, u.pinned, u.is_summary, u.info
  from {head} r,
       unnest(:message_events::int[], :message_ids::text[], :message_roles::smallint[], :message_steps::int[],
              :message_tokens::int[], :message_pinned::boolean[], :message_summaries::boolean[], :message_infos::bytea[])
         as u(n, id, role, step, tokens, pinned, is_summary, info)
