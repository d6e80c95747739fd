-- store::prune::restore_context
update session_context c
   set tool_result_tokens = c.tool_result_tokens + m.back, pruned_tokens = c.pruned_tokens - m.back, pruned_parts = c.pruned_parts - m.n
  from (select coalesce(sum(p.original_tokens - p.tokens), 0)::bigint as back, count(*) as n from {restored} p) m
 where c.tenant_id = :tenant and c.session_id = :session and {accepted}
