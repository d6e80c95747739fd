-- store::commit::import_answers: calls that were open, and are answered
update tool_calls c
   set status = 3, closed_at = now(), closed_by = :request_id, result_message_id = u.result, ord = u.ord
  from unnest(:answered_calls::text[], :answered_messages::text[], :answered_positions::int[]) as u(id, result, ord)
 where c.tenant_id = :tenant and c.session_id = :session and c.call_id = u.id and {accepted}
