-- store::queue::enqueue: a message and the request that brought it. Nothing is written where the gate lets nothing in, or for a request
-- that is repeated; outcome tells which.
-- $3 to $10 as in into_queue and behind_gate $11 request id $12 its hash
with known as (
insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
select $1, $2, $11, $12, $3
