-- store::admission::first_context
insert into session_context (tenant_id, session_id, messages, overhead_tokens, user_tokens, user_parts, assistant_tokens,
                             assistant_parts, reasoning_tokens, reasoning_parts, tool_call_tokens, tool_call_parts,
                             tool_result_tokens, tool_result_parts, media_tokens, media_parts, pinned_tokens, pinned_parts)
select :tenant, :session, g.messages, g.overhead, g.t1, g.n1, g.t2, g.n2, g.t3, g.n3, g.t4, g.n4, g.t5, g.n5, g.t6, g.n6, g.t8, g.n8
  from {grown} g
 where {accepted}
