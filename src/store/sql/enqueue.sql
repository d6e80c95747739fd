-- store::queue::enqueue: behind a key-share lock on the gate, which is held to the commit: whoever ends the turn waits for it, and
-- sees the message. 0 rows: no such session, no room, or a repeated request; outcome tells.
-- $3 message $4 body $5 delivery $6 whether it starts a turn $7 whether it is an ExecuteTurn's input $8 its turn request or null
-- $9 time to live (s) or null $10 most messages that wait $11 request id or null $12 its hash or null
-- $13 blobs that it refers to
with gate as (
  select 1 from sessions s where s.tenant_id = $1 and s.session_id = $2 for key share),
room as (
  select from gate
   where (select count(*) from (select from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0 limit $10) q) < $10),
known as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select $1, $2, $11, $12, $3 from room where $11::text is not null
  on conflict do nothing returning 1),
queued as (
  insert into queue (tenant_id, session_id, message_id, body, delivery, starts_turn, from_execute, request, request_id, expires_at)
  select $1, $2, $3, $4::bytea, $5::smallint, $6::boolean, $7::boolean, $8::bytea, $11, now() + make_interval(secs => $9)
    from room where $11::text is null or exists (select from known)
  returning message_id),
-- Under its own id, for as long as the session lives: content stays while its message waits.
keep as (
  insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
  select $1, $2, q.message_id, u.idx, u.blob from queued q, unnest($13::text[]) with ordinality as u(blob, idx))
select message_id from queued
