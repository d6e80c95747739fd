, grown as (
  select (select count(*) from unnest($9::text[])) + (select batch from closing) as messages,
         (select coalesce(sum(t), 0) from unnest($12::int[]) t) + (select batch * $44::int from closing) as overhead,
         coalesce(sum(t) filter (where c = 1), 0) as t1, count(*) filter (where c = 1) as n1,
         coalesce(sum(t) filter (where c = 2), 0) as t2, count(*) filter (where c = 2) as n2,
         coalesce(sum(t) filter (where c = 3), 0) as t3, count(*) filter (where c = 3) as n3,
         coalesce(sum(t) filter (where c = 4), 0) as t4, count(*) filter (where c = 4) as n4,
         coalesce(sum(t) filter (where c = 5), 0) + (select n * $43::int from closing) as t5,
         count(*) filter (where c = 5) + (select n from closing) as n5,
         coalesce(sum(t) filter (where c = 6), 0) as t6, count(*) filter (where c = 6) as n6,
         coalesce(sum(t) filter (where c = 8), 0) as t8, count(*) filter (where c = 8) as n8
    from unnest($23::int[], $24::smallint[]) as u(t, c))
