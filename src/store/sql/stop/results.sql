-- store::turn::stop_results
insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, tokens, category, estimator)
select c.tenant_id, c.session_id, c.result_message_id, c.ord, 'tool_result', c.call_id, c.tool_name, 5, :closed_words,
       :closed_tokens::int, 5, :estimator
  from tool_calls c
 where c.tenant_id = :tenant and c.session_id = :session and {accepted} and c.turn_id = :turn and c.status < 3
