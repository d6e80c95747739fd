-- store::fork::next_piece: the next messages of a session that are to be copied, as far as they fit, and what those of them add up to that the
-- model sees. One message is taken even if it exceeds the limits. No rows: the session is gone, or another session has
-- its id. `after`: messages up to this seq are copied. `is_last`: no messages are left after these.
{live},
next as (
  select n.* from messages n
   where n.tenant_id = :tenant and n.session_id = :session and n.seq > :after and n.seq <= :at order by n.seq limit :most_messages),
sized as (
  select n.seq, row_number() over w as nth,
         sum(octet_length(n.info)
             + coalesce((select sum(octet_length(p.body) + coalesce(octet_length(p.rest), 0)) from parts p
                          where p.tenant_id = :tenant and p.session_id = :session and p.message_id = n.message_id), 0)) over w as bytes
    from next n window w as (order by n.seq)),
piece as materialized (
  select max(s.seq) filter (where s.bytes <= :most_bytes::bigint or s.nth = 1) as last, count(*) as messages,
         count(*) filter (where s.bytes > :most_bytes::bigint and s.nth > 1) as later
    from sized s),
live as (
  select s.message_id, s.tokens, s.is_summary from spoken s where s.seq > :after and s.seq <= (select last from piece)
  union all
  select s.message_id, s.tokens, s.is_summary from summary s where s.seq > :after and s.seq <= (select last from piece)),
counted as (
  select case when m.is_summary then 7 else p.category end as category,
         {tokens_at} as tokens,
         case when p.pruned_at_seq <= :at then p.original_tokens - p.tokens else coalesce(p.original_tokens, p.tokens) - h.tokens end as saved
    from live m
    join lateral (select * from parts p
                   where p.tenant_id = :tenant and p.session_id = :session and p.message_id = m.message_id offset 0) p on true
    left join past h on h.message_id = p.message_id and h.idx = p.idx),
-- By category; 9 is what pruning saved.
size as (
  select array_agg(coalesce(c.tokens, 0)::bigint order by n) as tokens, array_agg(coalesce(c.parts, 0)::int order by n) as parts
    from generate_series(1, 9) n
    left join (select x.category, sum(x.tokens) as tokens, count(*) as parts
                 from (select category, tokens from counted union all select 9, saved from counted where saved is not null) x
                group by x.category) c on c.category = n)
select x.last, x.messages < :most_messages and x.later = 0 as is_last, r.context_version,
       (select count(*) from live)::int as delta_messages, (select coalesce(sum(m.tokens), 0) from live m)::bigint as delta_overhead,
       z.tokens as delta_tokens, z.parts as delta_parts
  from size z, piece x, sessions s join session_run r on r.tenant_id = :tenant and r.session_id = :session
 where s.tenant_id = :tenant and s.session_id = :session and s.created_at = :source_created
