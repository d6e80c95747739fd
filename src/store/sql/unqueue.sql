-- store::queue::unqueue: messages that wait are withdrawn by anyone, after lock_run, each with its event.
-- `messages` null: all. One statement, since a message that is queued meanwhile must not be in one part of it and missing in another.
with picked as (
  select q.message_id, row_number() over (order by q.pos) as k
    from queue q
   where q.tenant_id = :tenant and q.session_id = :session and q.status = 0 and (:messages::text[] is null or q.message_id = any(:messages))
     and (not :expired_only::boolean or q.expires_at < now())
     and (:request_id::text is null or not exists (select from idempotency i where i.tenant_id = :tenant and i.session_id = :session
                                             and i.request_id = :request_id))),
f as (
  update session_run r
     set next_seq = r.next_seq + (select count(*) from picked)
   where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3 and exists (select from picked)
  returning r.epoch, r.next_seq, r.next_seq - (select count(*) from picked) as base,
            case when r.state in (1, 2) then r.turn_id end as turn_id),
end_messages as (
  update queue q set status = :status::smallint, seq = f.base + p.k - 1, ended_at = now(), drop_reason = :drop_reason::smallint
    from f, picked p where q.tenant_id = :tenant and q.session_id = :session and q.message_id = p.message_id and q.status = 0),
write_events as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
  select :tenant, :session, f.base + p.k - 1, f.epoch, f.turn_id, 0, 0, :kind, array[p.message_id], :payload::bytea from f, picked p),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select :tenant, :session, :request_id, :request_hash, coalesce((select string_agg(p.message_id, ' ' order by p.k) from picked p), '') from session_run r
   where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3 and :request_id::text is not null
  on conflict do nothing)
select p.message_id, f.next_seq from f, picked p order by p.k
