-- store::take::take: messages that wait become part of the transcript, in the owner's hand, or of an idle session's, whose fence is left
-- alone. next_seq is compared: whoever withdraws a message moves it, so all that the look showed are still waiting. After lock_run it
-- need not be ($29 null). Never between calls and their results.
-- $27 epoch $28 op $29 next_seq as seen $30 steps to go on by $31 lease (s), or null
-- $37 revision that the next step is made for, or null: another one in force refuses it $38 1 the turn that runs, 0 the idle session
-- $39 owner $40 turn, of the turn that runs
-- messages: $32 ids $33 statuses (1 applied, 4 dropped) $34 ordinals of their events $35 user messages or null $36 drop reasons or null
with delta as (select coalesce((select sum(t) from unnest($12::int[]) t), 0)
                    + coalesce((select sum(t) from unnest($23::int[]) t), 0) as tokens),
f as (
  update session_run r
     set op = r.op + $38::smallint, written_by = case when r.state = 1 then $39 else r.written_by end, context_version = r.context_version + 1 - $38::smallint,
         anchor_version = r.anchor_version + case when r.anchor_version = r.context_version then 1 - $38::smallint else 0 end,
         next_seq = r.next_seq + cardinality($3::text[]), ctx_tokens = r.ctx_tokens + delta.tokens,
         step = r.step + $30::int, attempt = case when $30::int > 0 then 1 else r.attempt end,
         lease_until = greatest(r.lease_until, now() + make_interval(secs => $31))
    from delta
   where r.tenant_id = $1 and r.session_id = $2 and r.epoch = $27 and r.op = $28 and r.next_seq = coalesce($29::bigint, r.next_seq)
     and r.state = $38::smallint and (r.state = 0 or r.owner = $39 and r.turn_id = $40) and r.revision = coalesce($37::bigint, r.revision) and (r.cancel = 0 or r.state = 0)
     and r.open_calls = 0
     and (select count(*) from queue q where q.tenant_id = $1 and q.session_id = $2 and q.message_id = any($32::text[])
             and q.status = 0 and q.delivery <> 2) = cardinality($32::text[])
  returning r.epoch, r.op, r.next_seq, r.next_seq - cardinality($3::text[]) as base,
            case when r.state = 1 then r.turn_id end as turn_id, r.ctx_tokens, r.state, r.cancel),
end_messages as (
  update queue q set status = u.status, seq = f.base + u.ord - 1, ended_at = now(), applied_to = u.target, drop_reason = u.reason
    from f, unnest($32::text[], $33::smallint[], $34::int[], $35::text[], $36::smallint[]) as u(id, status, ord, target, reason)
   where q.tenant_id = $1 and q.session_id = $2 and q.message_id = u.id and q.status = 0)
