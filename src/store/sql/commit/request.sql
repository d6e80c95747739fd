-- store::commit::request: what the request with this key has led to. Whoever remembers a request writes the session, so that one that has this key
-- was seen by the statement before.
insert into idempotency as i (tenant_id, session_id, request_id, req_hash, result)
select :tenant, :session, :request_id, :request_hash, :led
 where {accepted}
on conflict (tenant_id, session_id, request_id) do update set result = excluded.result where i.req_hash = excluded.req_hash
