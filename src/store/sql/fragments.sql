-- Text that several statements share: `{name}` in a statement is replaced by the text that follows the name here.

-- {active_tenants}
-- Tenants with sessions, found one after another, each by one index lookup.
with recursive tenants as (
  (select a.tenant_id from session_activity a order by a.tenant_id limit 1)
  union all
  select (select a.tenant_id from session_activity a where a.tenant_id > t.tenant_id order by a.tenant_id limit 1)
    from tenants t where t.tenant_id is not null)

-- {all_after}
(select n.*, n.seq as place from messages n
        where n.tenant_id = :tenant and n.session_id = :session and n.seq <= :at and n.seq > :place order by n.seq limit :limit)

-- {all_before}
(select n.*, n.seq as place from messages n
        where n.tenant_id = :tenant and n.session_id = :session and n.seq <= :at and n.seq < :place order by n.seq desc limit :limit)

-- {anchor_columns}
-- The last measured call, and the version of the context it may apply to.
r.context_version, r.anchor_model, r.anchor_version, r.anchor_input, r.anchor_output, r.anchor_tokens, r.anchor_estimated,
       r.anchor_basis, case when now() - r.anchor_at < interval '5 minutes' then r.anchor_cached end as anchor_cached

-- {compacted_by}
case when m.is_summary and m.message_id = (select k.summary_message from in_force k) then null
            when m.is_summary and exists (select from stack k where k.summary_message = m.message_id) then
              (select k.compaction_id from stack k where k.active_from_seq > m.seq order by k.active_from_seq limit 1)
            when m.is_summary then
              (select c.compaction_id from compactions c
                where c.tenant_id = :tenant and c.session_id = :session and c.summary_message = m.message_id)
            when (not m.pinned or (select k.hides_pinned from in_force k)) and m.seq between (select k.from_seq from in_force k) and (select k.to_seq from in_force k)
                 and m.seq <> all ((select k.kept from in_force k)::bigint[]) then
              (select k.compaction_id from stack k
                where m.seq between k.from_seq and k.to_seq and m.seq <> all (k.kept) and (not m.pinned or k.hides_pinned)
                order by k.active_from_seq limit 1) end

-- {compaction_columns}
c.compaction_id, c.status, c.from_seq, c.to_seq, c.predecessor, c.summary_message, c.info, c.created_at, c.ended_at,
       (select e.at from events e where e.tenant_id = :tenant and e.session_id = :session and e.seq = c.reverted_at_seq) as reverted_at

-- {compactions_known}
-- The state of the compactions of the session `s`, without reading the failed ones.
lateral (
  select count(*)::int as compactions, max(c.ended_at) as compacted_at,
         exists (select from compactions n where n.tenant_id = :tenant and n.session_id = s.session_id and n.status = 1) as compacting
    from compactions c where c.tenant_id = :tenant and c.session_id = s.session_id and c.status = 2)

-- {counter_columns}
r.ctx_messages, r.ctx_overhead, r.ctx_tokens, r.ctx_parts

-- {event_totals}
-- Total usage of the turn that the event `e` ends, from the turn's row, since the owner that wrote the event may have
-- had an older total.
case when e.kind in ('turn_completed', 'turn_cancelled', 'turn_failed')
     then (select {turn_totals}
             from turns t where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = e.turn_id) end as totals

-- {holder}
-- The owner of the running turn, and when it may be taken over if its replica sends no further heartbeat.
r.owner, case when r.owner is not null
              then greatest(r.lease_until, (select p.lease_until from replicas p where p.replica_id = r.owner)) end as lease_until

-- {in_force}
(select * from compactions n
           where n.tenant_id = :tenant and n.session_id = :session and n.status = 2 order by n.active_from_seq desc limit 1)

-- {item_part}
select x.message_id, x.idx, x.kind, null, x.tool_name, null, x.rest, x.category, x.estimator, x.original_tokens,
               x.tokens, x.pruned_at_seq, '', false
          from parts x
         where x.kind = 'provider_item' and x.tenant_id = :tenant and x.session_id = :session

-- {lease_is_over}
-- No replica owns the turn of r: the lease of the turn and that of its owner have both expired.
(r.lease_until < now() and not exists (select from replicas p where p.replica_id = r.owner and p.lease_until >= now()))

-- {live}
-- The compactions that were in force and the messages that the model saw, as of a seq. Prompts, lists and forks are all
-- built from this fragment, so that they cannot differ. Later marks are ignored; `past` has marks that were removed
-- later. `at` is the seq; the largest bigint means now.
with past as materialized (
  select h.message_id, h.idx, h.pruned_at_seq, h.tokens
    from past_prunes h
   where h.tenant_id = :tenant and h.session_id = :session and h.pruned_at_seq <= :at and h.restored_at_seq > :at and :at < 9223372036854775807),
stack as (
  select c.compaction_id, c.from_seq, c.to_seq, c.kept, c.hides_pinned, c.active_from_seq, c.summary_message
    from compactions c
   where c.tenant_id = :tenant and c.session_id = :session and c.status = 2 and c.active_from_seq <= :at
  union all
  select c.compaction_id, c.from_seq, c.to_seq, c.kept, c.hides_pinned, c.active_from_seq, c.summary_message
    from compactions c
   where c.tenant_id = :tenant and c.session_id = :session and c.status = 4 and c.active_from_seq <= :at and c.reverted_at_seq > :at
     and :at < 9223372036854775807),
in_force as (select k.* from stack k order by k.active_from_seq desc limit 1),
spoken as not materialized (
  select n.*, n.seq as place
    from messages n
   where n.tenant_id = :tenant and n.session_id = :session and n.seq <= :at and not n.is_summary
     and (n.voided_at_seq is null or n.voided_at_seq > :at)
     and (n.pinned and (select k.hides_pinned from in_force k) is not true or n.seq = any ((select k.kept from in_force k)::bigint[])
          or (n.seq between (select k.from_seq from in_force k) and (select k.to_seq from in_force k)) is not true)),
summary as not materialized (
  select n.*, k.from_seq as place
    from in_force k join messages n on n.tenant_id = :tenant and n.session_id = :session and n.message_id = k.summary_message)

-- {live_after}
((select s.* from spoken s where s.seq > :place order by s.seq limit :limit)
        union all (select s.* from summary s where s.place > :place) order by place limit :limit)

-- {live_before}
((select s.* from spoken s where s.seq < :place order by s.seq desc limit :limit)
        union all (select s.* from summary s where s.place < :place) order by place desc limit :limit)

-- {made_for}
-- The revision for which a step of the turn `t` was prepared, from its newest `step_started` event.
lateral (select e.refs, e.at from events e
                   where e.tenant_id = :tenant and e.session_id = :session and e.seq >= t.first_seq
                     and e.seq < coalesce(t.last_seq, r.next_seq)
                     and e.turn_id = t.turn_id and e.kind = 'step_started' order by e.seq desc limit 1) e on true
  join session_revisions v on v.tenant_id = :tenant and v.session_id = :session and v.revision = coalesce(e.refs[1]::bigint, r.revision)
  join toolsets s on s.tenant_id = :tenant and s.toolset_id = v.toolset_id

-- {media_part}
select x.message_id, x.idx, x.kind, x.call_id, x.tool_name, x.outcome, x.rest, x.category, x.estimator, x.original_tokens,
               x.tokens, x.pruned_at_seq, case when x.kind = 'tool_result' then '' else x.body end as body, false as attached
          from parts x
         where (x.kind in ('media', 'media_url') or (x.kind = 'tool_result' and x.rest is not null))
           and x.tenant_id = :tenant and x.session_id = :session

-- {message_bytes}
octet_length(m.info)
       + coalesce((select sum(octet_length(p.body) + coalesce(octet_length(p.rest), 0)) from parts p
                    where p.tenant_id = :tenant and p.session_id = :session and p.message_id = m.message_id), 0)

-- {message_columns}
select m.place, m.seq, m.message_id, m.turn_id, m.step, m.role, m.pinned, m.is_summary, m.tokens as overhead, m.created_at,
       m.info, case when m.voided_at_seq <= :at then m.voided_at_seq end as voided_at_seq,
       p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest, p.category, p.estimator,
       coalesce(p.original_tokens, p.tokens) as original_tokens,
       {tokens_at} as tokens,
       {pruned_seq_at} as pruned_at_seq,
       case when p.pruned_at_seq <= :at or h.pruned_at_seq is not null then
         (select e.at from events e
           where e.tenant_id = :tenant and e.session_id = :session and e.seq = {pruned_seq_at}) end as pruned_at

-- {message_parts}
-- One row per part. The parts of each message are looked up by its id: otherwise the planner assumes that every session
-- is short, and reads all parts of a long session for each of its messages. `past` has the marks that were removed
-- after the seq.
left join lateral (
  select * from parts p
   where p.tenant_id = :tenant and p.session_id = :session and p.message_id = m.message_id offset 0) p on true
  left join past h on h.message_id = p.message_id and h.idx = p.idx

-- {model_dependent}
-- The parts of a live transcript that depend on the model, in addition to the counters. Media in tool results are not
-- counted separately: they exist if a part refers to a blob. Provider-specific items are not counted separately either.
-- The subqueries are ordered so that they are read by key.
coalesce((select true from part_blobs b where b.tenant_id = :tenant and b.session_id = r.session_id
                 order by b.message_id, b.idx, b.blob_id limit 1), false) as has_blobs,
       coalesce((select true from parts i where i.tenant_id = :tenant and i.session_id = r.session_id and i.kind = 'provider_item'
                  order by i.message_id limit 1), false) as has_items

-- {more_waits}
exists (select 1 from queue q where q.tenant_id = :tenant and q.session_id = :session and q.status = 0 and q.delivery <> 2)

-- {pruned_seq_at}
case when p.pruned_at_seq <= :at then p.pruned_at_seq else h.pruned_at_seq end

-- {queue_position}
-- The rank of the message `q` in its queue, if it still waits.
(select count(*) from queue p where p.tenant_id = :tenant and p.session_id = :session and p.status = 0 and p.pos <= q.pos)::int as position

-- {queued_columns}
q.message_id, q.pos, q.status, q.delivery, q.starts_turn, q.request, q.body, q.request_id, q.enqueued_at, q.expires_at,
       (q.expires_at < now()) is true as expired, q.applied_to, q.drop_reason

-- {reasoning_part}
select x.message_id, x.idx, x.kind, null, null, null, null, x.category, x.estimator, x.original_tokens,
               x.tokens, x.pruned_at_seq, '', coalesce(octet_length(x.rest) > :bare_reasoning, false)
          from parts x
         where x.kind = 'reasoning' and x.tenant_id = :tenant and x.session_id = :session

-- {reported_tenant_lives}
-- The tenant of a report is not being deleted, and was not deleted since the replica read the deletions.
not exists (select from tenant_deletions d
             where d.tenant_id = u.tenant and (d.done_at is null or d.done_at > :known_at::timestamptz))

-- {session_columns}
-- The session row and the queue, from which changes are decided, with the version that a commit compares. Every write
-- to the queue also writes this row.
r.version, r.state, r.epoch, r.op, r.written_by, r.owner, {lease_is_over} as lease_is_over, r.takeovers, r.cancel,
       r.cancel_cause, r.cancel_reason, r.turn_id, r.step, r.attempt, r.open_calls, r.tool_deadline, r.turn_deadline, r.next_seq, r.revision,
       {counter_columns}, r.anchor_model, r.anchor_version, r.anchor_input, r.anchor_output, r.anchor_tokens, r.anchor_cached, r.anchor_estimated,
       r.anchor_basis, r.growth, r.context_version,
       (select json_build_array(c.compaction_id, c.context_version, c.lease_until < now())::text
          from compactions c where c.tenant_id = :tenant and c.session_id = :session and c.status = 1) as compaction,
       (select json_agg(json_build_array(q.message_id, q.delivery, q.starts_turn, q.from_execute, q.expires_at) order by q.pos)::text
          from queue q where q.tenant_id = :tenant and q.session_id = :session and q.status = 0) as queue

-- {session_page}
-- Follows `page`: its sessions whose configurations fit into `bytes`, but at least one.
fits as (
  select p.*, sum(octet_length(v.config)) over w as bytes, row_number() over w as n, count(*) over () as page_rows
    from page p
    join session_run r on r.tenant_id = :tenant and r.session_id = p.session_id and r.state <> 3
    join session_revisions v on v.tenant_id = :tenant and v.session_id = p.session_id and v.revision = r.revision
  window w as (order by p.updated_at desc, p.session_id desc))
select s.session_id, s.created_at, s.forked_from, s.forked_at_seq, s.events_from, f.updated_at, r.state, r.turn_id, {holder}, r.next_seq,
       r.revision, {counter_columns}, r.open_calls, v.config, ''::bytea as tools, 0 as tools_tokens, f.page_rows,
       {anchor_columns},
       {model_dependent},
       (select count(*) from queue q where q.tenant_id = :tenant and q.session_id = s.session_id and q.status = 0)::int as queued,
       k.compactions, k.compacted_at, k.compacting
  from fits f
  join sessions s on s.tenant_id = :tenant and s.session_id = f.session_id
  join session_run r on r.tenant_id = :tenant and r.session_id = f.session_id
  join session_revisions v on v.tenant_id = :tenant and v.session_id = f.session_id and v.revision = r.revision
  cross join {compactions_known} k
 where f.bytes <= :bytes or f.n = 1
 order by f.updated_at desc, f.session_id desc

-- {tenant_lives}
not exists (select from tenant_deletions d
             where d.tenant_id = :tenant and (d.done_at is null or d.done_at > :known_at::timestamptz))

-- {tokens_at}
case when p.pruned_at_seq <= :at then p.tokens else coalesce(h.tokens, p.original_tokens, p.tokens) end

-- {turn_columns}
t.turn_id, t.state, r.state as run_state, t.request_id, t.request, t.started_at, t.ended_at, t.first_seq,
       t.last_seq, t.step_count, t.final_message, {turn_totals} as totals, t.outcome, v.revision, v.config,
       extract(epoch from coalesce(t.ended_at, now()) - t.started_at)::float8 as elapsed,
       case when t.state = 1 then r.step else t.step_count end as steps_begun,
       coalesce(t.state = 1 and e.at >= r.turn_deadline, false) as late

-- {turn_totals}
array[t.calls, t.input_tokens, t.output_tokens, t.reasoning_tokens, t.cache_read_tokens, t.cache_write_tokens]::bigint[]

-- {used_in_time}
-- The session was last used within this period, and comes after the previous page.
(:since::timestamptz is null or a.updated_at >= :since) and (:until::timestamptz is null or a.updated_at < :until)
     and (:after::timestamptz is null or (a.updated_at, a.session_id) < (:after, :after_session))
