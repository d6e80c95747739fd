,
-- The counters are what the live transcript adds up to; what was known of its size is forgotten.
-- $4 epoch $5 op of the statement before
live as (select s.message_id, s.tokens, s.is_summary from spoken s union all select s.message_id, s.tokens, s.is_summary from summary s),
counted as (
  select case when m.is_summary then 7 else p.category end as category, p.tokens, p.original_tokens - p.tokens as saved
    from live m
    join lateral (select * from parts p
                   where p.tenant_id = $1 and p.session_id = $2 and p.message_id = m.message_id offset 0) p on true),
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
    from counted),
f as (
  update session_run r
     set context_version = r.context_version + 1, ctx_tokens = z.overhead + z.tokens, anchor_input = null, anchor_output = null,
         anchor_version = null, anchor_tokens = null
    from size z
   where r.tenant_id = $1 and r.session_id = $2 and r.epoch = $4 and r.op = $5::bigint + 1 and r.state = 0
  returning r.state, r.cancel, r.next_seq),
write_context as (
  update session_context c
     set messages = z.messages, overhead_tokens = z.overhead, user_tokens = z.t1, user_parts = z.n1, assistant_tokens = z.t2,
         assistant_parts = z.n2, reasoning_tokens = z.t3, reasoning_parts = z.n3, tool_call_tokens = z.t4, tool_call_parts = z.n4,
         tool_result_tokens = z.t5, tool_result_parts = z.n5, media_tokens = z.t6, media_parts = z.n6, summary_tokens = z.t7,
         summary_parts = z.n7, pinned_tokens = z.t8, pinned_parts = z.n8, pruned_tokens = z.t9, pruned_parts = z.n9
    from f, size z where c.tenant_id = $1 and c.session_id = $2)
select f.state, f.cancel, f.next_seq from f
