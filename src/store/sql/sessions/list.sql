-- store::session_filter::sessions: the last used first, after this time and session
with page as (
  select a.session_id, a.updated_at from session_activity a
   where a.tenant_id = :tenant and a.updated_at > '-infinity' and {used_in_time}
     and (cardinality(:states::smallint[]) = 0
          or exists (select from session_run r where r.tenant_id = :tenant and r.session_id = a.session_id and r.state = any (:states)))
   order by a.updated_at desc, a.session_id desc limit :limit),
{session_page}
