-- store::usage::since
with m as (select m.seq, m.behind from messages m where m.tenant_id = :tenant and m.session_id = :session and m.message_id = :message),
later as (
  select n.message_id, n.tokens, n.behind
    from m join lateral (select * from messages n where n.tenant_id = :tenant and n.session_id = :session and n.seq > m.seq offset 0) n on true)
select m.behind, (select count(*) from later l where l.behind is not null) as later,
       coalesce((select sum(l.tokens) from later l), 0)
       + coalesce((select sum(p.tokens)
                     from later l
                     join lateral (select * from parts p
                                    where p.tenant_id = :tenant and p.session_id = :session and p.message_id = l.message_id offset 0) p on true), 0) as tokens
  from m
