, write_context as (
  update session_context c
     set messages = c.messages + s.messages, overhead_tokens = c.overhead_tokens + s.overhead,
         user_tokens = c.user_tokens + s.tokens[1], user_parts = c.user_parts + s.parts[1],
         assistant_tokens = c.assistant_tokens + s.tokens[2], assistant_parts = c.assistant_parts + s.parts[2],
         reasoning_tokens = c.reasoning_tokens + s.tokens[3], reasoning_parts = c.reasoning_parts + s.parts[3],
         tool_call_tokens = c.tool_call_tokens + s.tokens[4], tool_call_parts = c.tool_call_parts + s.parts[4],
         tool_result_tokens = c.tool_result_tokens + s.tokens[5], tool_result_parts = c.tool_result_parts + s.parts[5],
         media_tokens = c.media_tokens + s.tokens[6], media_parts = c.media_parts + s.parts[6],
         summary_tokens = c.summary_tokens + s.tokens[7], summary_parts = c.summary_parts + s.parts[7],
         pinned_tokens = c.pinned_tokens + s.tokens[8], pinned_parts = c.pinned_parts + s.parts[8],
         pruned_tokens = c.pruned_tokens + s.tokens[9], pruned_parts = c.pruned_parts + s.parts[9]
    from f, shift s
   where c.tenant_id = $1 and c.session_id = $2)
