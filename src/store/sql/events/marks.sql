-- store::lost_commits::check: events that retention removed are not lost
select u.tenant as tenant_id, u.session as session_id, u.seq, r.next_seq, e.at, l.lost
  from unnest(:tenants::text[], :sessions::text[], :seqs::bigint[], :times::timestamptz[]) as u(tenant, session, seq, at)
  join session_run r on r.tenant_id = u.tenant and r.session_id = u.session and r.state <> 3
  left join lateral (select e.at from events e
                      where e.tenant_id = u.tenant and e.session_id = u.session and e.seq = u.seq offset 0) e on true
 cross join lateral (select (r.next_seq <= u.seq or e.at <> u.at) is true as lost) l
 where l.lost or (u.at is null and e.at is not null)
