-- store::sweep::sweep_events: of events of that age (s), looking at so many rows at most
with s as (
  select s.tenant_id, s.session_id, coalesce(s.events_from, s.forked_at_seq + 1, 1) as first
    from sessions s
   where coalesce(s.events_since, s.created_at) < now() - make_interval(secs => :age)
   order by coalesce(s.events_since, s.created_at) limit 1 for no key update skip locked),
seen as (
  select e.seq, e.at, e.kind, e.turn_id, e.step,
         e.at < now() - make_interval(secs => :age) and (t.first_seq is null or e.seq < t.first_seq) as goes
    from s
    join lateral (select e.seq, e.at, e.kind, e.turn_id, e.step from events e
                   where e.tenant_id = s.tenant_id and e.session_id = s.session_id and e.seq >= s.first
                   order by e.seq limit :most) e on true
    left join turns t on t.tenant_id = s.tenant_id and t.session_id = s.session_id and t.state = 1),
-- The oldest event that readers get from now on; null: the session has none that they would get.
kept as (
  select coalesce(min(e.seq) filter (where not e.goes), max(e.seq) + 1) as first, count(*) = :most and bool_and(e.goes) as more,
         min(e.at) filter (where not e.goes) as since, max(e.at) as newest
    from seen e),
gone as (
  delete from events e using s, seen, kept k
   where e.tenant_id = s.tenant_id and e.session_id = s.session_id and e.seq = seen.seq and seen.seq < k.first
     and seen.kind not in ('session_updated', 'context_pruned', 'context_restored', 'compaction_reverted', 'turn_cancelled')
     and not (seen.kind = 'step_started'
              and exists (select from turns t where t.tenant_id = s.tenant_id and t.session_id = s.session_id
                             and t.turn_id = seen.turn_id and t.step_count = seen.step))
  returning 1),
-- When to look again: at once if there may be more, when the oldest one is old enough, or in a while if it belongs to the live turn.
mark as (
  update sessions x
     set events_from = coalesce(k.first, s.first),
         events_since = case when k.more then k.newest
                             when k.since is null then now()
                             else greatest(k.since, now() - make_interval(secs => :age) + interval '10 minutes') end
    from s, kept k where x.tenant_id = s.tenant_id and x.session_id = s.session_id)
select (select count(*) from s) as sessions, (select count(*) from gone) as events
