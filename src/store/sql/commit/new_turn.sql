-- store::commit::new_turn
insert into turns (tenant_id, session_id, turn_id, request_id, request, model, trace, first_seq, anchor_before)
select r.tenant_id, r.session_id, :turn, :asked_by, :asked::bytea, :asked_model, :trace, :first_seq::bigint, {anchor_before}
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
