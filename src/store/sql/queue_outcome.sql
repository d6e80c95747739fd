-- store::queue::outcome: the message that a request queued when it came first
select r.state, r.turn_id, q.message_id, q.status, q.applied_to, q.drop_reason, q.enqueued_at, q.expires_at,
       {queue_position}
  from session_run r
  join queue q on q.tenant_id = :tenant and q.session_id = :session and q.message_id = :message
 where r.tenant_id = :tenant and r.session_id = :session
