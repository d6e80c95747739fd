-- store::submission::submit: answers to calls, after lock_run and with the request remembered. Results, denials and timeouts close a
-- call, an approval hands it out. Only open calls of the live turn count that the host was asked about (they have a deadline), each
-- once however often it is named. When none of these is left, the next call that waits for its turn is asked about. The statement
-- that closes the last open call closes the batch, whoever owns the turn; if it has no owner, it takes the lease and begins the next step.
-- Closing answers: `needed` is the status that an answer is for, or null, `leads_to` the one that it leads to (4 timed out: only past the
-- deadline, its own or the turn's), `edited` whether the arguments are those of an approver, or null; `blobs` are whole outputs and media,
-- with commas between them, or null. Approvals: `requests` are payloads of tool_call_requested, `edits` edited arguments or null.
-- `submission` names this statement to the calls that it requests.
-- `started` is the payload of the next step_started, null where the turn takes no further step, and `revision` what that step is made
-- for: when another one is in force the owner begins the step; also where messages wait, which it takes with that step.
with run as (
  select r.state, r.open_calls, r.turn_id, r.step, r.attempt, r.revision, r.turn_deadline
    from session_run r
   where r.tenant_id = :tenant and r.session_id = :session and r.cancel = 0 and r.state in (1, 2)
     and (:request_id::text is null or not exists (select from idempotency i where i.tenant_id = :tenant and i.session_id = :session
                                              and i.request_id = :request_id and i.req_hash <> :request_hash))),
d as (
  select distinct on (u.call) u.*
    from unnest(:closed_calls::text[], :outcomes::smallint[], :bodies::text[], :rests::bytea[], :tokens::int[], :hashes::text[], :blobs::text[], :needed::smallint[], :leads_to::smallint[],
                :edited::boolean[]) with ordinality as u(call, outcome, body, rest, tokens, hash, blob, needs, becomes, edited, n)
   order by u.call, u.n),
s as (
  select d.*, c.tool_name, c.ord, c.result_message_id, c.step, row_number() over (order by d.n) as k
    from run cross join d
    join tool_calls c on c.tenant_id = :tenant and c.session_id = :session and c.call_id = d.call and c.turn_id = run.turn_id and c.status < 3
                     and c.deadline is not null and (d.needs is null or c.status = d.needs) and (d.becomes <> 4 or least(c.deadline, run.turn_deadline) < now())
                     and (d.edited is null or d.edited = (c.edited_arguments is not null))),
approvals as (
  select distinct on (u.call) u.*
    from unnest(:approved_calls::text[], :requests::bytea[], :edits::text[]) with ordinality as u(call, request, edited, n)
   order by u.call, u.n),
a as (
  select u.call, u.request, u.edited, c.timeout, c.executor, row_number() over (order by u.n) as k
    from run cross join approvals u
    join tool_calls c on c.tenant_id = :tenant and c.session_id = :session and c.call_id = u.call and c.turn_id = run.turn_id and c.status = 2
                     and c.deadline is not null
   where not exists (select from s where s.call = u.call)),
stays as (
  select c.call_id, c.status, c.ord, c.deadline, c.timeout, c.executor, c.request, a.call is not null as approved
    from run join tool_calls c on c.tenant_id = :tenant and c.session_id = :session and c.turn_id = run.turn_id and c.status < 3
    left join a on a.call = c.call_id
   where not exists (select from s where s.call = c.call_id)),
due as (
  select w.call_id, w.status, w.timeout, w.executor, w.request
    from stays w
   where w.deadline is null and exists (select from s) and not exists (select from stays o where o.deadline is not null)
   order by w.ord limit 1),
asked as (
  select w.call_id, w.ord, w.status <> 2 or w.approved as runs
    from stays w where w.deadline is not null or w.call_id = (select t.call_id from due t)),
rest as (
  select min(case when w.approved or w.deadline is null then now() + w.timeout else w.deadline end) as deadline
    from stays w join asked q on q.call_id = w.call_id),
n as (
  select count(*) as n, coalesce(sum(s.tokens), 0) as tokens, min(s.result_message_id) as message_id, min(s.step) as step,
         count(*) > 0 and exists (select from run where run.open_calls = (select count(*) from s)) as closes,
         count(*) > 0 and exists (select from run where run.state = 2 and run.open_calls = (select count(*) from s)) as resumes
    from s),
e as (
  select (select count(*) from a) as approved, (select count(*) from due) as due,
         case when exists (select from a) or exists (select from due) then 1 else 0 end as action,
         case when n.closes then 1 else 0 end as batch, case when n.resumes then 1 else 0 end as owner,
         case when n.resumes and :started::bytea is not null and run.revision = :revision
                   and not {more_waits}
              then 1 else 0 end as step
    from n, run),
f as (
  update session_run r
     set next_seq = r.next_seq + n.n + e.approved + e.due + e.action + e.batch + e.step, open_calls = r.open_calls - n.n,
         epoch = r.epoch + e.owner, owner = case when n.resumes then :owner else r.owner end,
         lease_until = case when n.resumes then now() + make_interval(secs => :lease) else r.lease_until end,
         state = case when n.resumes then 1 else r.state end, takeovers = case when n.resumes then 0 else r.takeovers end,
         step = r.step + e.step, attempt = case when e.step = 1 then 1 else r.attempt end,
         tool_deadline = case when n.closes then null else least(rest.deadline, r.turn_deadline) end,
         ctx_tokens = r.ctx_tokens + n.tokens + e.batch * :overhead::int
    from n, e, rest
   where r.tenant_id = :tenant and r.session_id = :session and n.n + e.approved > 0
  returning r.epoch, r.op, r.next_seq, r.next_seq - n.n - e.approved - e.due - e.action - e.batch - e.step as base, r.turn_id,
            r.ctx_tokens, r.state, r.open_calls, r.step, r.attempt),
close_calls as (
  update tool_calls c set status = s.becomes, closed_at = now(), closed_by = :request_id, answer_hash = s.hash
    from f, s where c.tenant_id = :tenant and c.session_id = :session and c.call_id = s.call),
approve_calls as (
  update tool_calls c set status = 0, requested_at = now(), deadline = now() + c.timeout, edited_arguments = a.edited, requested_by = :submission::text
    from f, a where c.tenant_id = :tenant and c.session_id = :session and c.call_id = a.call),
ask_next as (
  update tool_calls c
     set status = case when c.status = 1 then 0 else c.status end, requested_at = now(), deadline = now() + c.timeout, request = null,
         requested_by = :submission
    from f, due t where c.tenant_id = :tenant and c.session_id = :session and c.call_id = t.call_id),
write_results as (
  insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator)
  select :tenant, :session, s.result_message_id, s.ord, 'tool_result', s.call, s.tool_name, s.outcome, s.body, s.rest, s.tokens, 5, :estimator from f, s),
write_blobs as (
  insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
  select distinct :tenant, :session, s.result_message_id, s.ord, u.blob from f, s, unnest(string_to_array(s.blob, ',')) as u(blob)),
write_batch as (
  insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, info)
  select :tenant, :session, f.base + n.n, n.message_id, f.turn_id, 4, n.step, :overhead::int, '' from f, n where n.closes),
write_events as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
  select :tenant, :session, f.base + s.k - 1, f.epoch, f.turn_id, s.step, run.attempt, 'tool_call_completed', array[s.call], null::bigint, ''::bytea
    from f, s, run
  union all
  select :tenant, :session, f.base + n.n + a.k - 1, f.epoch, f.turn_id, run.step, run.attempt, 'tool_call_requested', array[a.call], null, a.request
    from f, n, a, run
  union all
  select :tenant, :session, f.base + n.n + e.approved, f.epoch, f.turn_id, run.step, run.attempt,
         case when t.status = 1 then 'tool_call_requested' else 'approval_requested' end, array[t.call_id], null, t.request
    from f, n, e, due t, run
  union all
  select :tenant, :session, f.base + n.n + e.approved + e.due, f.epoch, f.turn_id, run.step, run.attempt, 'action_required',
         array(select q.call_id from asked q order by q.runs desc, q.ord), (select count(*) from asked q where q.runs), ''
    from f, n, e, run where e.action = 1
  union all
  select :tenant, :session, f.base + n.n, f.epoch, f.turn_id, n.step, run.attempt, 'message_committed', array[n.message_id], null, ''
    from f, n, run where n.closes
  union all
  select :tenant, :session, f.next_seq - 1, f.epoch, f.turn_id, f.step, f.attempt, 'step_started', array[:revision::bigint::text], f.ctx_tokens + :offset::bigint, :started::bytea
    from f, e where e.step = 1),
write_context as (
  update session_context c
     set messages = c.messages + e.batch, overhead_tokens = c.overhead_tokens + e.batch * :overhead::int,
         tool_result_tokens = c.tool_result_tokens + n.tokens, tool_result_parts = c.tool_result_parts + n.n
    from f, n, e where c.tenant_id = :tenant and c.session_id = :session),
remember as (
  update idempotency i
     set result = (coalesce(nullif(i.result, ''), '[]')::jsonb || to_jsonb(array(select s.call from s union all select a.call from a)))::text
    from f where i.tenant_id = :tenant and i.session_id = :session and i.request_id = :request_id)
select f.epoch, f.op, f.next_seq, n.resumes, f.open_calls, f.turn_id,
       array(select s.call from s union all select a.call from a) as accepted,
       array(select a.call from a where a.executor = 2 union all select t.call_id from due t where t.status = 1 and t.executor = 2) as requested
  from f, n
