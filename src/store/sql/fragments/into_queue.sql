insert into queue (tenant_id, session_id, message_id, body, delivery, starts_turn, from_execute, request, expires_at, request_id)
select :tenant, :session, :message, :body::bytea, :delivery::smallint, :starts_turn::boolean, :from_execute::boolean, :request::bytea, now() + make_interval(secs => :ttl),
