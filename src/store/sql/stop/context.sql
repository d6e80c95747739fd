-- store::turn::stop_context: what the calls that are closed add
update session_context c
   set messages = c.messages + o.batch, overhead_tokens = c.overhead_tokens + o.batch * :closed_overhead::int,
       tool_result_tokens = c.tool_result_tokens + o.n * :closed_tokens::int, tool_result_parts = c.tool_result_parts + o.n
  from {closing} o
 where c.tenant_id = :tenant and c.session_id = :session and {accepted} and o.n > 0
