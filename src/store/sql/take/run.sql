-- store::take::take: the fence where messages that wait become part of the transcript, in the owner's hand (state 1), or of an idle
-- session's (state 0), whose own fence is left alone. A seq that was seen is compared: whoever withdraws a message moves it, so all that
-- the look showed are still waiting. After lock_run it need not be. Never between calls and their results. A revision that the next step
-- is made for is compared as well.
update session_run r
   set op = r.op + :state::smallint,
       written_by = case when r.state = 1 then :owner else r.written_by end, context_version = r.context_version + 1 - :state,
       anchor_version = r.anchor_version + case when r.anchor_version = r.context_version then 1 - :state else 0 end,
       next_seq = r.next_seq + cardinality(:kinds::text[]), ctx_tokens = r.ctx_tokens + n.delta,
       step = r.step + :begun_steps::int, attempt = case when :begun_steps > 0 then 1 else r.attempt end,
       lease_until = greatest(r.lease_until, now() + make_interval(secs => :lease))
  from (select {added} as delta) n
 where r.tenant_id = :tenant and r.session_id = :session
   and r.epoch = :epoch and r.op = :op and (:next_seq::bigint is null or r.next_seq = :next_seq)
   and r.state = :state::smallint and (r.state = 0 or r.owner = :owner and r.turn_id = :turn)
   and r.revision = coalesce(:revision::bigint, r.revision) and (r.cancel = 0 or r.state = 0)
   and r.open_calls = 0
   and (select count(*) from queue q
         where q.tenant_id = :tenant and q.session_id = :session and q.message_id = any(:queued::text[])
           and q.status = 0 and q.delivery <> 2) = cardinality(:queued::text[])
returning {accept}, r.state, r.cancel, r.next_seq
