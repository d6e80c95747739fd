-- One row per part. Each message's parts are looked up by its id: left to itself the planner takes every session for a short one, and
-- reads all of a long one's parts for each of its messages. `past` has the marks that were taken back since the seq.
left join lateral (
  select * from parts p
   where p.tenant_id = :tenant and p.session_id = :session and p.message_id = m.message_id offset 0) p on true
  left join past h on h.message_id = p.message_id and h.idx = p.idx
