-- store::commit::results
insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator)
select :tenant, :session, u.message, u.idx, 'tool_result', u.call, u.name, u.outcome, u.body, u.rest, u.tokens, 5, :estimator
  from unnest(:result_messages::text[], :result_positions::int[], :closed_calls::text[], :closed_tools::text[], :outcomes::smallint[],
              :bodies::text[], :rests::bytea[], :result_tokens::int[])
         as u(message, idx, call, name, outcome, body, rest, tokens)
 where {accepted}
