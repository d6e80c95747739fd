-- store::commit::queued: the message that joins the queue
insert into queue (tenant_id, session_id, message_id, body, delivery, starts_turn, from_execute, request, expires_at, request_id)
select :tenant, :session, :queued, :queued_body::bytea, :queued_delivery::smallint, :starts_turn::boolean, :from_execute::boolean,
       :execute::bytea, now() + make_interval(secs => :ttl::float8), :queued_by
 where {accepted}
returning enqueued_at, expires_at
