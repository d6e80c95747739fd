-- store::lease::cancel_request: a turn that was reached runs now
insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
select r.tenant_id, r.session_id, :request_id, :request_hash,
       case when r.state = 1 and (:turn::text is null or r.turn_id = :turn) then r.turn_id else '' end
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session
on conflict do nothing
