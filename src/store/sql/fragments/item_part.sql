select x.message_id, x.idx, x.kind, null, x.tool_name, null, x.rest, x.category, x.estimator, x.original_tokens,
               x.tokens, x.pruned_at_seq, '', false
          from parts x
         where x.kind = 'provider_item' and x.tenant_id = :tenant and x.session_id = :session
