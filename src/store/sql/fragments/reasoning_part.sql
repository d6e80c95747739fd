select x.message_id, x.idx, x.kind, null, null, null, null, x.category, x.estimator, x.original_tokens,
               x.tokens, x.pruned_at_seq, '', coalesce(octet_length(x.rest) > :bare_reasoning, false)
          from parts x
         where x.kind = 'reasoning' and x.tenant_id = :tenant and x.session_id = :session
