-- store::prune::restore: after lock_run. Results that one prune cleared are seen by the model again. It is refused as a prune is. The prune
-- stays known, for views as of a seq between the two.
update session_run r
   set context_version = r.context_version + 1, next_seq = r.next_seq + 1, ctx_tokens = r.ctx_tokens + m.back
  from (select coalesce(sum(p.original_tokens - p.tokens), 0)::bigint as back, count(*) as n from {restored} p) m
 where r.tenant_id = :tenant and r.session_id = :session
   and r.state <> 3 and r.context_version = :seen and m.n > 0 and {request_is_new}
returning {accept}, r.context_version, r.next_seq
