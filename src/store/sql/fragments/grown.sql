(select (select count(*) from unnest(:message_ids::text[])) as messages,
          (select coalesce(sum(t), 0) from unnest(:message_tokens::int[]) t) as overhead,
          coalesce(sum(t) filter (where c = 1), 0) as t1, count(*) filter (where c = 1) as n1,
          coalesce(sum(t) filter (where c = 2), 0) as t2, count(*) filter (where c = 2) as n2,
          coalesce(sum(t) filter (where c = 3), 0) as t3, count(*) filter (where c = 3) as n3,
          coalesce(sum(t) filter (where c = 4), 0) as t4, count(*) filter (where c = 4) as n4,
          coalesce(sum(t) filter (where c = 5), 0) as t5, count(*) filter (where c = 5) as n5,
          coalesce(sum(t) filter (where c = 6), 0) as t6, count(*) filter (where c = 6) as n6,
          coalesce(sum(t) filter (where c = 8), 0) as t8, count(*) filter (where c = 8) as n8
     from unnest(:part_tokens::int[], :part_categories::smallint[]) as u(t, c))
