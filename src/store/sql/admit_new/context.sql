-- store::admission::first_context
insert into session_context (tenant_id, session_id, messages, overhead_tokens, user_tokens, user_parts, assistant_tokens,
                             assistant_parts, reasoning_tokens, reasoning_parts, tool_call_tokens, tool_call_parts,
                             tool_result_tokens, tool_result_parts, media_tokens, media_parts, pinned_tokens, pinned_parts)
select :tenant, :session, g.messages, g.overhead, g.t1, g.n1, g.t2, g.n2, g.t3, g.n3, g.t4, g.n4, g.t5, g.n5, g.t6, g.n6, g.t8, g.n8
  from (
  select (select count(*) from unnest(:message_ids::text[])) as messages,
         (select coalesce(sum(t), 0) from unnest(:message_tokens::int[]) t) as overhead,
         coalesce(sum(t) filter (where c = 1), 0) as t1, count(*) filter (where c = 1) as n1,
         coalesce(sum(t) filter (where c = 2), 0) as t2, count(*) filter (where c = 2) as n2,
         coalesce(sum(t) filter (where c = 3), 0) as t3, count(*) filter (where c = 3) as n3,
         coalesce(sum(t) filter (where c = 4), 0) as t4, count(*) filter (where c = 4) as n4,
         coalesce(sum(t) filter (where c = 5), 0) as t5, count(*) filter (where c = 5) as n5,
         coalesce(sum(t) filter (where c = 6), 0) as t6, count(*) filter (where c = 6) as n6,
         coalesce(sum(t) filter (where c = 8), 0) as t8, count(*) filter (where c = 8) as n8
    from unnest(:part_tokens::int[], :part_categories::smallint[]) as u(t, c)) g
