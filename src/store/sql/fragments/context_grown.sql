messages = c.messages + g.messages, overhead_tokens = c.overhead_tokens + g.overhead,
       user_tokens = c.user_tokens + g.t1, user_parts = c.user_parts + g.n1,
       assistant_tokens = c.assistant_tokens + g.t2, assistant_parts = c.assistant_parts + g.n2,
       reasoning_tokens = c.reasoning_tokens + g.t3, reasoning_parts = c.reasoning_parts + g.n3,
       tool_call_tokens = c.tool_call_tokens + g.t4, tool_call_parts = c.tool_call_parts + g.n4,
       tool_result_tokens = c.tool_result_tokens + g.t5, tool_result_parts = c.tool_result_parts + g.n5,
       media_tokens = c.media_tokens + g.t6, media_parts = c.media_parts + g.n6,
       pinned_tokens = c.pinned_tokens + g.t8, pinned_parts = c.pinned_parts + g.n8
