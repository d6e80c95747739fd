-- store::commit::context: what results add to the live transcript
update session_context c
   set messages = c.messages + :messages::int, overhead_tokens = c.overhead_tokens + :overhead::int,
       tool_result_tokens = c.tool_result_tokens + :results_tokens::bigint, tool_result_parts = c.tool_result_parts + :results::int
 where c.tenant_id = :tenant and c.session_id = :session and {accepted}
