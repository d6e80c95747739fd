-- store::commit::messages: a summary belongs to no turn; the first of those that a host appends says which version of the transcript they
-- were appended to
insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, pinned, is_summary, created_at, info, behind)
select :tenant, :session, :first_seq::bigint + u.event - 1, u.id, case when not u.is_summary then :turn end, u.role, u.step, u.tokens, u.pinned,
       u.is_summary, coalesce(u.at, now()), u.info, u.behind
  from unnest(:message_events::int[], :message_ids::text[], :message_roles::smallint[], :message_steps::int[], :message_tokens::int[],
              :message_pinned::boolean[], :message_summaries::boolean[], :message_times::timestamptz[], :message_infos::bytea[],
              :message_behind::bigint[])
         as u(event, id, role, step, tokens, pinned, is_summary, at, info, behind)
 where {accepted}
