-- store::prune::prune: after lock_run. Tool results become their placeholder, if the context is the one that they were chosen from and
-- something is left to prune. What was said stays: only the model no longer sees it.
update session_run r
   set context_version = r.context_version + 1, next_seq = r.next_seq + 1, ctx_tokens = r.ctx_tokens - m.saved
  from (select coalesce(sum(p.tokens - :placeholder::int), 0)::bigint as saved, count(*) as n from {pruned} p) m
 where r.tenant_id = :tenant and r.session_id = :session
   and r.state <> 3 and r.context_version = :seen and m.n > 0 and {request_is_new}
returning {accept}, r.context_version, r.next_seq
