-- store::rows::context
update session_context c
   set messages = c.messages + g.messages, overhead_tokens = c.overhead_tokens + g.overhead,
       user_tokens = c.user_tokens + g.t1, user_parts = c.user_parts + g.n1,
       assistant_tokens = c.assistant_tokens + g.t2, assistant_parts = c.assistant_parts + g.n2,
       reasoning_tokens = c.reasoning_tokens + g.t3, reasoning_parts = c.reasoning_parts + g.n3,
       tool_call_tokens = c.tool_call_tokens + g.t4, tool_call_parts = c.tool_call_parts + g.n4,
       tool_result_tokens = c.tool_result_tokens + g.t5, tool_result_parts = c.tool_result_parts + g.n5,
       media_tokens = c.media_tokens + g.t6, media_parts = c.media_parts + g.n6,
       pinned_tokens = c.pinned_tokens + g.t8, pinned_parts = c.pinned_parts + g.n8
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
 where c.tenant_id = :tenant and c.session_id = :session
