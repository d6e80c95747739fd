-- store::queue::unqueue: messages that wait are withdrawn by anyone, after lock_run, each with its event.
-- $3 which, or null for all $4 status (2 cancelled, 3 expired, 4 dropped) $5 only those whose time passed $6 drop reason or null
-- $7 kind $8 payload $9 request id or null $10 its hash
with picked as (
  select q.message_id, row_number() over (order by q.pos) as k
    from queue q
   where q.tenant_id = $1 and q.session_id = $2 and q.status = 0 and ($3::text[] is null or q.message_id = any($3))
     and (not $5::boolean or q.expires_at < now())
     and ($9::text is null or not exists (select from idempotency i where i.tenant_id = $1 and i.session_id = $2
                                             and i.request_id = $9))),
f as (
  update session_run r
     set next_seq = r.next_seq + (select count(*) from picked)
   where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3 and exists (select from picked)
  returning r.epoch, r.next_seq, r.next_seq - (select count(*) from picked) as base,
            case when r.state in (1, 2) then r.turn_id end as turn_id),
end_messages as (
  update queue q set status = $4::smallint, seq = f.base + p.k - 1, ended_at = now(), drop_reason = $6::smallint
    from f, picked p where q.tenant_id = $1 and q.session_id = $2 and q.message_id = p.message_id and q.status = 0),
write_events as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
  select $1, $2, f.base + p.k - 1, f.epoch, f.turn_id, 0, 0, $7, array[p.message_id], $8::bytea from f, picked p),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select $1, $2, $9, $10, coalesce((select string_agg(p.message_id, ' ' order by p.k) from picked p), '') from session_run r
   where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3 and $9::text is not null
  on conflict do nothing)
select p.message_id, f.next_seq from f, picked p order by p.k
