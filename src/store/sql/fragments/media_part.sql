select x.message_id, x.idx, x.kind, x.call_id, x.tool_name, x.outcome, x.rest, x.category, x.estimator, x.original_tokens,
               x.tokens, x.pruned_at_seq, case when x.kind = 'tool_result' then '' else x.body end as body, false as attached
          from parts x
         where (x.kind in ('media', 'media_url') or (x.kind = 'tool_result' and x.rest is not null))
           and x.tenant_id = :tenant and x.session_id = :session
