-- $3 message $4 body $5 delivery $6 whether it starts a turn $7 whether it is an ExecuteTurn's input $8 its turn request or null
-- $9 time to live (s) or null; after it the request that brought it
insert into queue (tenant_id, session_id, message_id, body, delivery, starts_turn, from_execute, request, expires_at, request_id)
select $1, $2, $3, $4::bytea, $5::smallint, $6::boolean, $7::boolean, $8::bytea, now() + make_interval(secs => $9),
