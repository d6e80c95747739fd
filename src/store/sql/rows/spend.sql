-- store::usage::spend
insert into usage_totals as u (tenant_id, session_id, purpose, model, calls, input_tokens, output_tokens, reasoning_tokens,
                               cache_read_tokens, cache_write_tokens)
select r.tenant_id, r.session_id, 1, :model, :calls::bigint, :input_tokens::bigint, :output_tokens::bigint, :reasoning_tokens::bigint,
       :cache_read_tokens::bigint, :cache_write_tokens::bigint
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
{usage_added}
