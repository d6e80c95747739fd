-- store::session_filter::found_sessions: as `sessions`, of those few that an index finds `by` their state, labels or text. The branches that are not
-- selected are not run.
with candidates as (
  select t.session_id from turns t where :by::text = 'live' and t.tenant_id = :tenant and t.state = 1
  union
  select v.session_id from session_revisions v where :by = 'labels' and v.tenant_id = :tenant and v.labels @> :labels::bytea[]
  union
  select r.session_id from session_run r
   where :by = 'text' and r.tenant_id = :tenant and r.session_id >= :text and r.session_id < :text_end
  union
  select v.session_id from session_revisions v
   where :by = 'text' and v.tenant_id = :tenant and v.title >= :text and v.title < :text_end),
page as (
  select a.session_id, a.updated_at
    from candidates c
    join session_run r on r.tenant_id = :tenant and r.session_id = c.session_id
     and (cardinality(:states::smallint[]) = 0 or r.state = any (:states))
    join session_revisions v on v.tenant_id = :tenant and v.session_id = c.session_id and v.revision = r.revision
     and (cardinality(:labels) = 0 or v.labels @> :labels)
     and (:text::text = '' or v.session_id >= :text and v.session_id < :text_end or v.title >= :text and v.title < :text_end)
    join session_activity a on a.tenant_id = :tenant and a.session_id = c.session_id and a.updated_at > '-infinity' and {used_in_time}
   order by a.updated_at desc, a.session_id desc limit :limit),
{session_page}
