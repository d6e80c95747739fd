-- store::prune::prune_context
update session_context c
   set tool_result_tokens = c.tool_result_tokens - m.saved, pruned_tokens = c.pruned_tokens + m.saved, pruned_parts = c.pruned_parts + m.n
  from (select coalesce(sum(p.tokens - :placeholder::int), 0)::bigint as saved, count(*) as n from {pruned} p) m
 where c.tenant_id = :tenant and c.session_id = :session and {accepted}
