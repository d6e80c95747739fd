-- store::delete::delete: while holding the gate, after lock_run. The session is no more: whoever owns its turn is fenced, the turn ends
-- with its terminal event, calls that are open are closed, messages that wait are dropped. 0 rows: deleted, or it moved since it
-- was looked at. The rows stay for those who follow it, and its id with them, until they are purged. How far the epoch got is
-- remembered longer, under a key that no client can send: a session that takes the id later begins after it, so that the fence of
-- an owner of this one is never in force again.
-- `turn` is the live turn as seen, or null; `revision` the one that the caller has seen, or null; `unused_for` null, or only if no turn is
-- live and the session was not used for so long (s), or for its own time to live if that is less. Which call or message an event is of
-- comes from refs.
with run as (
  select r.turn_id, r.step, r.attempt from session_run r where r.tenant_id = :tenant and r.session_id = :session and r.state in (1, 2)),
waiting as (
  select q.message_id, row_number() over (order by q.pos) as k
    from queue q where q.tenant_id = :tenant and q.session_id = :session and q.status = 0),
open as (
  select c.call_id, c.tool_name, c.ord, c.result_message_id, c.step, row_number() over (order by c.ord) as k
    from run join tool_calls c on c.tenant_id = :tenant and c.session_id = :session and c.turn_id = run.turn_id and c.status < 3),
n as (
  select (select count(*) from waiting) as waiting, count(*) as open, case when count(*) > 0 then 1 else 0 end as batch,
         (select count(*) from run) as live, min(result_message_id) as message_id, min(step) as step from open),
f as (
  update session_run r
     set state = 3, epoch = r.epoch + 1, owner = null, lease_until = now() + make_interval(secs => :stay), open_calls = 0,
         tool_deadline = null, next_seq = r.next_seq + n.waiting + n.open + n.batch + n.live
    from n
   where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3 and r.epoch = :epoch and r.op = :op
     and (case when r.state in (1, 2) then r.turn_id end) is not distinct from :turn and (:revision::bigint is null or r.revision = :revision)
     and (:request_id::text is null
          or not exists (select from idempotency i where i.tenant_id = :tenant and i.session_id = :session and i.request_id = :request_id))
     and (:unused_for::float8 is null
          or r.state = 0
             and exists (select from session_activity a
                          where a.tenant_id = :tenant and a.session_id = :session
                            and greatest(a.updated_at, (select max(q.enqueued_at) from queue q
                                                         where q.tenant_id = :tenant and q.session_id = :session and q.status = 0))
                                < now() - least(a.ttl, make_interval(secs => :unused_for))))
  returning r.epoch, r.next_seq, r.next_seq - n.waiting - n.open - n.batch - n.live as base),
gone as (
  delete from sessions s using f where s.tenant_id = :tenant and s.session_id = :session),
unlist as (
  update session_activity a set updated_at = '-infinity' from f where a.tenant_id = :tenant and a.session_id = :session),
drop_messages as (
  update queue q set status = 4, seq = f.base + w.k - 1, ended_at = now(), drop_reason = 1
    from f, waiting w where q.tenant_id = :tenant and q.session_id = :session and q.message_id = w.message_id),
close_calls as (
  update tool_calls c set status = 6, closed_at = now()
    from f, open o where c.tenant_id = :tenant and c.session_id = :session and c.call_id = o.call_id),
write_results as (
  insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, tokens, category, estimator)
  select :tenant, :session, o.result_message_id, o.ord, 'tool_result', o.call_id, o.tool_name, 5, :closed_words, :closed_tokens::int, 5, :estimator from f, open o),
write_batch as (
  insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, info)
  select :tenant, :session, f.next_seq - 2, n.message_id, run.turn_id, 4, n.step, :closed_overhead::int, '' from f, n, run where n.open > 0),
write_events as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
  select :tenant, :session, f.base + w.k - 1, f.epoch, (select run.turn_id from run), 0, 0, 'queued_message_dropped', array[w.message_id], :dropped_payload::bytea
    from f, waiting w
  union all
  select :tenant, :session, f.base + n.waiting + o.k - 1, f.epoch, run.turn_id, run.step, run.attempt, 'tool_call_cancelled',
         array[o.call_id, o.tool_name], :closed_payload::bytea
    from f, n, run, open o
  union all
  select :tenant, :session, f.next_seq - 2, f.epoch, run.turn_id, run.step, run.attempt, 'message_committed', array[n.message_id], ''::bytea
    from f, n, run where n.open > 0
  union all
  select :tenant, :session, f.next_seq - 1, f.epoch, run.turn_id, run.step, run.attempt, 'turn_cancelled', '{}', :payload::bytea from f, run),
write_turn as (
  update turns t set state = 4, ended_at = now(), last_seq = f.next_seq - 1, outcome = :outcome::bytea, step_count = :step_count::int
    from f, run where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = run.turn_id),
write_request as (
  insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
  select :tenant, :session, :request_id, :request_hash, :led from f where :request_id::text is not null),
write_epoch as (
  insert into idempotency as i (tenant_id, session_id, request_id, req_hash, result) select :tenant, :session, '', '', f.epoch::text from f
  on conflict (tenant_id, session_id, request_id) do update set result = excluded.result, at = now())
select f.next_seq from f
