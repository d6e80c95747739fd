-- store::sweep::sweep_events: the oldest events, at most so many, of the session whose oldest event is the oldest of all
select s.tenant_id, s.session_id, s.events_from, coalesce(s.events_since, s.created_at) as since, coalesce(s.events_from, s.forked_at_seq + 1, 1) as first,
       now() as now, (select t.first_seq from turns t where t.tenant_id = s.tenant_id and t.session_id = s.session_id and t.state = 1) as live_from,
       e.seq, e.at, e.kind, exists (select from turns t where t.tenant_id = s.tenant_id and t.session_id = s.session_id
                                                         and t.turn_id = e.turn_id and t.step_count = e.step) as of_last_step
  from (select * from sessions s where coalesce(s.events_since, s.created_at) < now() - make_interval(secs => :age)
         order by coalesce(s.events_since, s.created_at) limit 1 for no key update skip locked) s
  left join lateral (select e.seq, e.at, e.kind, e.turn_id, e.step from events e
                      where e.tenant_id = s.tenant_id and e.session_id = s.session_id
                        and e.seq >= coalesce(s.events_from, s.forked_at_seq + 1, 1)
                      order by e.seq limit :most) e on true
 order by e.seq
