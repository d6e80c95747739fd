-- store::commit::leave_queue: messages that wait no longer, each with the event that says so
update queue q
   set status = u.status, seq = :first_seq::bigint + u.event, ended_at = now(), applied_to = u.target, drop_reason = u.reason
  from unnest(:leaving::text[], :leaving_statuses::smallint[], :leaving_events::int[], :leaving_into::text[], :drop_reasons::smallint[])
         as u(id, status, event, target, reason)
 where q.tenant_id = :tenant and q.session_id = :session and q.message_id = u.id and {accepted}
