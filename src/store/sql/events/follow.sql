-- store::event::follow
with page as (
  select e.seq, e.turn_id, e.step, e.attempt, e.at, e.kind, e.refs, e.size, e.payload,
         :overhead::bigint + octet_length(e.payload) + coalesce(m.bytes, 0) + coalesce(c.bytes, 0) as bytes
    from (select * from events
           where tenant_id = :tenant and session_id = :session and seq > :after order by seq limit :limit) e
    left join lateral (
      select octet_length(s.info) + coalesce((
               select sum(octet_length(p.body) + coalesce(octet_length(p.rest), 0) + 64) from parts p
                where p.tenant_id = :tenant and p.session_id = :session and p.message_id = e.refs[1]), 0) as bytes
        from messages s
       where s.tenant_id = :tenant and s.session_id = :session and s.message_id = e.refs[1] and e.kind = 'message_committed' offset 0) m on true
    left join lateral (
      select octet_length(p.body) + coalesce(octet_length(p.rest), 0) + 64 as bytes
        from tool_calls t
        join lateral (select * from parts p
                       where p.tenant_id = :tenant and p.session_id = :session and p.message_id = t.result_message_id and p.idx = t.ord offset 0) p on true
       where t.tenant_id = :tenant and t.session_id = :session and t.call_id = e.refs[1] and e.kind = 'tool_call_completed' offset 0) c on true),
summed as (
  select page.*, row_number() over w as n, sum(bytes) over w as total from page window w as (order by seq)),
fitting as (
  select summed.*, total <= :bytes::bigint or (n = 1 and :or_one) as fits from summed where n <= 2 or total - bytes <= :bytes::bigint)
select e.seq, e.turn_id, e.step, e.attempt, e.at, e.kind, e.refs, e.size, e.bytes::bigint as bytes, e.fits,
       case when e.fits then e.payload end as payload,
       {event_totals}
  from fitting e order by e.seq
