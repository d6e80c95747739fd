-- store::commit::close_calls
update tool_calls c
   set status = u.status, closed_at = now(), closed_by = :request_id, answer_hash = u.hash
  from unnest(:closed_calls::text[], :closed_statuses::smallint[], :hashes::text[]) as u(call, status, hash)
 where c.tenant_id = :tenant and c.session_id = :session and c.call_id = u.call and {accepted}
