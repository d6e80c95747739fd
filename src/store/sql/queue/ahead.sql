-- store::following::ahead: `in_any_case`: only what starts a turn in any case
select {more_waits} as waiting, q.*
  from (select 1) one
  left join lateral (
    select {queued_columns}, 1 as position
      from queue q
     where q.tenant_id = :tenant and q.session_id = :session and q.status = 0 and q.starts_turn and (q.expires_at < now()) is not true
       and (not :in_any_case::boolean or q.from_execute or q.delivery = 3)
     order by q.pos limit 1) q on true
