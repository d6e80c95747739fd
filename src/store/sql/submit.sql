-- store::tool_call::submit: answers to open calls, after lock_run. Only open calls of the live turn count, each once however often
-- it is named. The statement that answers the last open call closes the batch, whoever owns the turn; if nobody does, it takes the
-- lease and begins the next step.
-- $3 call ids $4 outcomes $5 words $6 rests $7 tokens $8 answer hashes $9 full outputs (blob ids or null)
-- $10 only calls whose deadline passed $11 status to set (3 answered, 4 timed out) $12 request id or null $13 its hash
-- $14 this replica $15 lease (s) $16 estimator $17 overhead of a message
-- $18 payload of the next step_started; null: the turn takes no further step $19 tokens outside of the transcript
-- $20 revision that the next step is made for: when another one is in force the owner begins the step
with d as (
  select distinct on (u.call) u.*
    from unnest($3::text[], $4::smallint[], $5::text[], $6::bytea[], $7::int[], $8::text[], $9::text[])
         with ordinality as u(call, outcome, body, rest, tokens, hash, blob, n)
   order by u.call, u.n),
run as (
  select r.state, r.open_calls, r.turn_id, r.cancel, r.step, r.attempt, r.revision from session_run r where r.tenant_id = $1 and r.session_id = $2),
s as (
  select d.*, c.tool_name, c.ord, c.result_message_id, c.step, row_number() over (order by d.n) as k
    from run
    join d on run.cancel = 0 and run.state in (1, 2)
    join tool_calls c on c.tenant_id = $1 and c.session_id = $2 and c.call_id = d.call and c.turn_id = run.turn_id and c.status = 0
                     and (not $10::boolean or c.deadline < now())
   where $12::text is null or not exists (select from idempotency i where i.tenant_id = $1 and i.session_id = $2
                                             and i.request_id = $12 and i.req_hash <> $13)),
n as (
  select count(*) as n, coalesce(sum(s.tokens), 0) as tokens, min(s.result_message_id) as message_id, min(s.step) as step,
         count(*) > 0 and exists (select from run where run.open_calls = (select count(*) from s)) as closes,
         count(*) > 0 and exists (select from run where run.state = 2 and run.open_calls = (select count(*) from s)) as resumes
    from s),
e as (
  select case when n.closes then 1 else 0 end as batch, case when n.resumes then 1 else 0 end as owner,
         case when n.resumes and $18::bytea is not null and run.revision = $20 then 1 else 0 end as step
    from n, run),
rest as (
  select min(c.deadline) as deadline
    from run join tool_calls c on c.tenant_id = $1 and c.session_id = $2 and c.turn_id = run.turn_id and c.status < 3
   where not exists (select from s where s.call = c.call_id)),
f as (
  update session_run r
     set next_seq = r.next_seq + n.n + e.batch + e.step, open_calls = r.open_calls - n.n,
         epoch = r.epoch + e.owner, owner = case when n.resumes then $14 else r.owner end,
         lease_until = case when n.resumes then now() + make_interval(secs => $15) else r.lease_until end,
         state = case when n.resumes then 1 else r.state end, takeovers = case when n.resumes then 0 else r.takeovers end,
         step = r.step + e.step, attempt = case when e.step = 1 then 1 else r.attempt end,
         tool_deadline = case when n.closes then null else least(rest.deadline, r.turn_deadline) end,
         ctx_tokens = r.ctx_tokens + n.tokens + e.batch * $17::int
    from n, e, rest
   where r.tenant_id = $1 and r.session_id = $2 and n.n > 0
  returning r.epoch, r.op, r.next_seq, r.next_seq - n.n - e.batch - e.step as base, r.turn_id, r.ctx_tokens, r.state, r.open_calls,
            r.step, r.attempt),
close_calls as (
  update tool_calls c set status = $11::smallint, closed_at = now(), closed_by = $12, answer_hash = s.hash
    from f, s where c.tenant_id = $1 and c.session_id = $2 and c.call_id = s.call),
write_results as (
  insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator)
  select $1, $2, s.result_message_id, s.ord, 'tool_result', s.call, s.tool_name, s.outcome, s.body, s.rest, s.tokens, 5, $16 from f, s),
write_blobs as (
  insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
  select $1, $2, s.result_message_id, s.ord, s.blob from f, s where s.blob is not null),
write_batch as (
  insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, info)
  select $1, $2, f.base + n.n, n.message_id, f.turn_id, 4, n.step, $17::int, '' from f, n where n.closes),
write_events as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
  select $1, $2, f.base + s.k - 1, f.epoch, f.turn_id, s.step, run.attempt, 'tool_call_completed', array[s.call], null::bigint, ''::bytea
    from f, s, run
  union all
  select $1, $2, f.base + n.n, f.epoch, f.turn_id, n.step, run.attempt, 'message_committed', array[n.message_id], null, ''
    from f, n, run where n.closes
  union all
  select $1, $2, f.next_seq - 1, f.epoch, f.turn_id, f.step, f.attempt, 'step_started', array[$20::bigint::text], f.ctx_tokens + $19::bigint, $18::bytea
    from f, e where e.step = 1),
write_context as (
  update session_context c
     set messages = c.messages + e.batch, overhead_tokens = c.overhead_tokens + e.batch * $17::int,
         tool_result_tokens = c.tool_result_tokens + n.tokens, tool_result_parts = c.tool_result_parts + n.n
    from f, n, e where c.tenant_id = $1 and c.session_id = $2)
select f.epoch, f.op, f.next_seq, n.resumes, f.open_calls, f.turn_id, array(select s.call from s) as accepted from f, n
