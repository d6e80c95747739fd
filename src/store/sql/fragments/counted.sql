-- After `live` and a list `live` of messages: what they add up to as of `at`, by category; 9 is what pruning has saved.
counted as (
  select case when m.is_summary then 7 else p.category end as category,
         {tokens_at} as tokens,
         case when p.pruned_at_seq <= :at then p.original_tokens - p.tokens else coalesce(p.original_tokens, p.tokens) - h.tokens end as saved
    from live m
    join lateral (select * from parts p
                   where p.tenant_id = :tenant and p.session_id = :session and p.message_id = m.message_id offset 0) p on true
    left join past h on h.message_id = p.message_id and h.idx = p.idx),
size as (
  select (select count(*) from live) as messages, (select coalesce(sum(m.tokens), 0) from live m) as overhead,
         coalesce(sum(tokens), 0) as tokens, coalesce(sum(saved), 0) as t9, count(saved) as n9,
         coalesce(sum(tokens) filter (where category = 1), 0) as t1, count(*) filter (where category = 1) as n1,
         coalesce(sum(tokens) filter (where category = 2), 0) as t2, count(*) filter (where category = 2) as n2,
         coalesce(sum(tokens) filter (where category = 3), 0) as t3, count(*) filter (where category = 3) as n3,
         coalesce(sum(tokens) filter (where category = 4), 0) as t4, count(*) filter (where category = 4) as n4,
         coalesce(sum(tokens) filter (where category = 5), 0) as t5, count(*) filter (where category = 5) as n5,
         coalesce(sum(tokens) filter (where category = 6), 0) as t6, count(*) filter (where category = 6) as n6,
         coalesce(sum(tokens) filter (where category = 7), 0) as t7, count(*) filter (where category = 7) as n7,
         coalesce(sum(tokens) filter (where category = 8), 0) as t8, count(*) filter (where category = 8) as n8
    from counted)
