-- store::import::import_messages: the first one says which version of the transcript it was appended to
insert into messages (tenant_id, session_id, seq, message_id, role, step, tokens, pinned, created_at, info, behind)
select r.tenant_id, r.session_id, r.base + u.n - 1, u.id, u.role, 0, u.tokens, u.pinned, coalesce(u.at, now()), u.info,
       case when u.n = 1 then 1 + :context::bigint + :epoch::bigint + :op::bigint end
  from {head} r,
       unnest(:appended_events::int[], :appended_ids::text[], :appended_roles::smallint[], :appended_tokens::int[],
              :appended_pinned::boolean[], :appended_infos::bytea[], :appended_times::timestamptz[])
         as u(n, id, role, tokens, pinned, info, at)
