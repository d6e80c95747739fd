-- store::commit::ask_calls: their time begins. `submission` names this commit to the calls that it hands out.
update tool_calls c
   set status = u.status, requested_at = now(), deadline = now() + c.timeout, request = null, requested_by = :submission,
       edited_arguments = coalesce(u.edited, c.edited_arguments)
  from unnest(:asked_calls::text[], :asked_statuses::smallint[], :edits::text[]) as u(call, status, edited)
 where c.tenant_id = :tenant and c.session_id = :session and c.call_id = u.call and {accepted}
