-- store::fork::open_at: the calls that had no result when the session was at a seq. Up to a seq nothing changes, so that the answer
-- is final.
with last as (
  select m.message_id, m.seq
    from messages m
   where m.tenant_id = :tenant and m.session_id = :session and m.seq <= :at and m.role <> 4 and not m.is_summary
     and (m.voided_at_seq is null or m.voided_at_seq > :at)
   order by m.seq desc limit 1),
answered as (
  select p.call_id
    from last
    join messages m on m.tenant_id = :tenant and m.session_id = :session and m.seq > last.seq and m.seq <= :at and m.role = 4
                   and (m.voided_at_seq is null or m.voided_at_seq > :at)
    join lateral (select * from parts p
                   where p.tenant_id = :tenant and p.session_id = :session and p.message_id = m.message_id offset 0) p on true)
select p.call_id
  from last
  join parts p on p.tenant_id = :tenant and p.session_id = :session and p.message_id = last.message_id and p.kind = 'tool_call'
 where p.call_id not in (select a.call_id from answered a where a.call_id is not null)
 order by p.idx
