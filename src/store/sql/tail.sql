-- store::import::tail
select r.state, r.turn_id, r.next_seq, r.epoch, r.op, r.revision, r.open_calls, {counter_columns}, i.req_hash, i.result,
       {model_dependent}, {anchor_columns}
  from session_run r
  left join idempotency i on i.tenant_id = :tenant and i.session_id = :session and i.request_id = :request_id
 where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3
