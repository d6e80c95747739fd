-- store::take::end_messages
update queue q
   set status = u.status, seq = r.base + u.ord - 1, ended_at = now(), applied_to = u.target, drop_reason = u.reason
  from {head} r,
       unnest(:queued::text[], :queued_statuses::smallint[], :queued_events::int[], :queued_into::text[], :drop_reasons::smallint[])
         as u(id, status, ord, target, reason)
 where q.tenant_id = :tenant and q.session_id = :session and q.message_id = u.id and q.status = 0
