-- The revision that a step of the turn `t` was made for, as its newest `step_started` says.
lateral (select e.refs, e.at from events e
                   where e.tenant_id = :tenant and e.session_id = :session and e.seq >= t.first_seq
                     and e.seq < coalesce(t.last_seq, r.next_seq)
                     and e.turn_id = t.turn_id and e.kind = 'step_started' order by e.seq desc limit 1) e on true
  join session_revisions v on v.tenant_id = :tenant and v.session_id = :session and v.revision = coalesce(e.refs[1]::bigint, r.revision)
  join toolsets s on s.tenant_id = :tenant and s.toolset_id = v.toolset_id
