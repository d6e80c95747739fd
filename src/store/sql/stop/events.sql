-- store::turn::stop_events: of the calls, of the batch, of the end
insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
select r.tenant_id, r.session_id, r.base + cardinality(:kinds::text[]) + u.k - 1, r.epoch, r.turn_id, r.step, r.attempt, u.kind, u.refs, u.payload
  from {head} r,
       (select row_number() over (order by c.ord) as k, 'tool_call_cancelled' as kind, array[c.call_id, c.tool_name] as refs,
               :closed_payload::bytea as payload
          from tool_calls c
         where c.tenant_id = :tenant and c.session_id = :session and c.turn_id = :turn and c.status < 3
        union all
        select o.n + 1, 'message_committed', array[o.message_id], ''::bytea from {closing} o where o.n > 0
        union all
        select o.n + o.batch + 1, :kind, {waiting}, :payload::bytea from {closing} o) u
