-- store::commit::new_context
insert into session_context (tenant_id, session_id, messages, overhead_tokens, user_tokens, user_parts, assistant_tokens, assistant_parts,
                             reasoning_tokens, reasoning_parts, tool_call_tokens, tool_call_parts, tool_result_tokens, tool_result_parts,
                             media_tokens, media_parts, summary_tokens, summary_parts, pinned_tokens, pinned_parts, pruned_tokens, pruned_parts)
select :tenant, :session, :shift_messages::int, :shift_overhead::bigint, s.t[1], s.p[1], s.t[2], s.p[2], s.t[3], s.p[3], s.t[4], s.p[4],
       s.t[5], s.p[5], s.t[6], s.p[6], s.t[7], s.p[7], s.t[8], s.p[8], s.t[9], s.p[9]
  from (select :shift_tokens::bigint[] as t, :shift_parts::int[] as p) s
 where {accepted}
