-- store::admission::first_turn
insert into turns (tenant_id, session_id, turn_id, request_id, request, model, first_seq)
values (:tenant, :session, :turn, :request_id, :request::bytea, :model, 1)
