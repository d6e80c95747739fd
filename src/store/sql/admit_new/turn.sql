-- store::admission::first_turn
insert into turns (tenant_id, session_id, turn_id, request_id, request, model, trace, first_seq)
select :tenant, :session, :turn, :request_id, :request::bytea, :model, :trace, 1
 where {accepted}
