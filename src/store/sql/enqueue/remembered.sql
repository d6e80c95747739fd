-- store::queue::enqueue: a message and the request that brought it. Nothing is written where the gate lets nothing in, or for a request
-- that is repeated; outcome tells which.
with known as (
insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
select :tenant, :session, :request_id, :request_hash, :message
  {gate}
on conflict do nothing returning 1),
queued as (
{into_queue} :request_id from known
{what_it_met}
