-- The end of a turn as plain statements of one transaction, in the order in which they are sent. The update of the hot row compares the
-- fence: where it is another one, `op` becomes null, which fails, and the transaction with it. What follows goes by the row that it left.
-- gate
select 1 from sessions where tenant_id = :tenant and session_id = :session for update;
-- lock
select 1 from session_run where tenant_id = :tenant and session_id = :session for no key update;
-- run
update session_run r
   set op = case when r.epoch = :epoch and r.op = :op and r.state = 1 and r.open_calls = 0 and r.owner = :owner and r.turn_id = :turn
                 then r.op + 1 end,
       written_by = :owner, ctx_tokens = r.ctx_tokens + n.delta, takeovers = 0,
       anchor_version = coalesce((:measured::bigint[])[1], r.anchor_version),
       anchor_input = coalesce((:measured::bigint[])[2]::int, r.anchor_input),
       anchor_output = coalesce((:measured::bigint[])[3]::int, r.anchor_output),
       anchor_tokens = coalesce(r.ctx_tokens + (:measured::bigint[])[4], r.anchor_tokens),
       anchor_cached = coalesce((:measured::bigint[])[5]::int, r.anchor_cached),
       anchor_estimated = coalesce((:measured::bigint[])[6]::int, r.anchor_estimated),
       anchor_basis = coalesce((:measured::bigint[])[7]::smallint, r.anchor_basis),
       anchor_model = case when (:measured::bigint[]) is null then r.anchor_model else :model end,
       anchor_at = case when (:measured::bigint[]) is null then r.anchor_at else now() end,
       growth = case when r.anchor_model = :model and r.anchor_version = (:measured::bigint[])[1] and (:measured::bigint[])[2] >= r.anchor_input
                     then coalesce(0.7 * r.growth + 0.3 * ((:measured::bigint[])[2] - r.anchor_input), (:measured::bigint[])[2] - r.anchor_input)
                     else r.growth end,
       next_seq = r.next_seq + cardinality(:kinds::text[]) + case when w.more or r.cancel <> 0 then 0 else 1 end,
       state = case when w.more or r.cancel <> 0 then 1 else 0 end,
       owner = case when w.more or r.cancel <> 0 then r.owner end,
       lease_until = case when w.more or r.cancel <> 0 then greatest(r.lease_until, now() + make_interval(secs => :lease))
                          else '-infinity' end
  from (select (select coalesce(sum(t), 0) from unnest(:message_tokens::int[]) t) + (select coalesce(sum(t), 0) from unnest(:part_tokens::int[]) t) as delta) n,
       (select exists (select 1 from queue q
                        where q.tenant_id = :tenant and q.session_id = :session and q.status = 0 and q.delivery <> 2) as more) w
 where r.tenant_id = :tenant and r.session_id = :session
returning r.state, r.cancel, r.next_seq;
-- events
insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
select r.tenant_id, r.session_id, r.next_seq - cardinality(:kinds::text[]) - case r.state when 0 then 1 else 0 end + u.n - 1, r.epoch, r.turn_id, coalesce(u.step, r.step), coalesce(u.attempt, r.attempt), u.kind,
       case when u.n > cardinality(:kinds::text[])
              then array(select q.message_id from queue q
                          where q.tenant_id = :tenant and q.session_id = :session and q.status = 0 order by q.pos)
            when u.ref = '' then '{}'::text[] else array[u.ref] end,
       case when u.kind = 'step_started' then r.ctx_tokens + :offset::bigint end, u.payload
  from session_run r, unnest(:kinds::text[] || 'turn_completed'::text, :payloads::bytea[] || :payload::bytea, :refs::text[] || ''::text,
                             :steps::int[] || null::int, :attempts::int[] || null::int)
                      with ordinality as u(kind, payload, ref, step, attempt, n)
 where r.tenant_id = :tenant and r.session_id = :session and (r.state = 0 or u.n <= cardinality(:kinds::text[]));
-- messages
insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, pinned, info)
select r.tenant_id, r.session_id, r.next_seq - cardinality(:kinds::text[]) - case r.state when 0 then 1 else 0 end + u.n - 1, u.id, r.turn_id, u.role, u.step, u.tokens, u.pinned, u.info
  from session_run r, unnest(:message_events::int[], :message_ids::text[], :message_roles::smallint[], :message_steps::int[],
                             :message_tokens::int[], :message_pinned::boolean[], :message_infos::bytea[])
                      as u(n, id, role, step, tokens, pinned, info)
 where r.tenant_id = :tenant and r.session_id = :session;
-- parts
insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator)
select r.tenant_id, r.session_id, u.message, u.idx, u.kind, u.call, u.name, u.outcome, u.body, u.rest, u.tokens, u.category, :estimator
  from session_run r, unnest(:part_messages::text[], :part_positions::int[], :part_kinds::text[], :part_calls::text[],
                             :part_names::text[], :part_outcomes::smallint[], :part_bodies::text[], :part_rests::bytea[],
                             :part_tokens::int[], :part_categories::smallint[])
                      as u(message, idx, kind, call, name, outcome, body, rest, tokens, category)
 where r.tenant_id = :tenant and r.session_id = :session;
-- media
insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
select r.tenant_id, r.session_id, u.message, u.idx, u.body
  from session_run r, unnest(:part_messages::text[], :part_positions::int[], :part_kinds::text[], :part_bodies::text[])
                      as u(message, idx, kind, body)
 where u.kind = 'media'
   and r.tenant_id = :tenant and r.session_id = :session;
-- turn
update turns t
   set state = case when r.state = 0 then 3 else 1 end, ended_at = case when r.state = 0 then now() end,
       last_seq = case when r.state = 0 then r.next_seq - 1 end, outcome = case when r.state = 0 then :outcome::bytea end,
       step_count = :step_count, final_message = coalesce(:final_message, t.final_message), calls = t.calls + :calls::bigint,
       input_tokens = t.input_tokens + :input_tokens::bigint, output_tokens = t.output_tokens + :output_tokens::bigint,
       reasoning_tokens = t.reasoning_tokens + :reasoning_tokens::bigint,
       cache_read_tokens = t.cache_read_tokens + :cache_read_tokens::bigint,
       cache_write_tokens = t.cache_write_tokens + :cache_write_tokens::bigint
  from session_run r
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = :turn and r.tenant_id = :tenant and r.session_id = :session;
-- context
update session_context c
   set messages = c.messages + g.messages, overhead_tokens = c.overhead_tokens + g.overhead,
       user_tokens = c.user_tokens + g.t1, user_parts = c.user_parts + g.n1,
       assistant_tokens = c.assistant_tokens + g.t2, assistant_parts = c.assistant_parts + g.n2,
       reasoning_tokens = c.reasoning_tokens + g.t3, reasoning_parts = c.reasoning_parts + g.n3,
       tool_call_tokens = c.tool_call_tokens + g.t4, tool_call_parts = c.tool_call_parts + g.n4,
       tool_result_tokens = c.tool_result_tokens + g.t5, tool_result_parts = c.tool_result_parts + g.n5,
       media_tokens = c.media_tokens + g.t6, media_parts = c.media_parts + g.n6,
       pinned_tokens = c.pinned_tokens + g.t8, pinned_parts = c.pinned_parts + g.n8
  from (
  select (select count(*) from unnest(:message_ids::text[])) as messages,
         (select coalesce(sum(t), 0) from unnest(:message_tokens::int[]) t) as overhead,
         coalesce(sum(t) filter (where c = 1), 0) as t1, count(*) filter (where c = 1) as n1,
         coalesce(sum(t) filter (where c = 2), 0) as t2, count(*) filter (where c = 2) as n2,
         coalesce(sum(t) filter (where c = 3), 0) as t3, count(*) filter (where c = 3) as n3,
         coalesce(sum(t) filter (where c = 4), 0) as t4, count(*) filter (where c = 4) as n4,
         coalesce(sum(t) filter (where c = 5), 0) as t5, count(*) filter (where c = 5) as n5,
         coalesce(sum(t) filter (where c = 6), 0) as t6, count(*) filter (where c = 6) as n6,
         coalesce(sum(t) filter (where c = 8), 0) as t8, count(*) filter (where c = 8) as n8
    from unnest(:part_tokens::int[], :part_categories::smallint[]) as u(t, c)) g
 where c.tenant_id = :tenant and c.session_id = :session;
-- usage
insert into usage_totals as u (tenant_id, session_id, purpose, model, calls, input_tokens, output_tokens, reasoning_tokens,
                               cache_read_tokens, cache_write_tokens)
select r.tenant_id, r.session_id, 1, :model, :calls::bigint, :input_tokens::bigint, :output_tokens::bigint, :reasoning_tokens::bigint,
       :cache_read_tokens::bigint, :cache_write_tokens::bigint
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session
on conflict (tenant_id, session_id, purpose, model) do update
   set calls = u.calls + excluded.calls, input_tokens = u.input_tokens + excluded.input_tokens,
       output_tokens = u.output_tokens + excluded.output_tokens, reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens,
       cache_read_tokens = u.cache_read_tokens + excluded.cache_read_tokens,
       cache_write_tokens = u.cache_write_tokens + excluded.cache_write_tokens;
-- chunks
delete from partial_chunks p
 where p.tenant_id = :tenant and p.session_id = :session and p.epoch <= :epoch;
-- activity
update session_activity a
   set updated_at = now()
  from session_run r
 where a.tenant_id = :tenant and a.session_id = :session and r.tenant_id = :tenant and r.session_id = :session and r.state = 0;
