, write_usage as (
  insert into usage_totals as u (tenant_id, session_id, purpose, model, calls, input_tokens, output_tokens, reasoning_tokens,
                                 cache_read_tokens, cache_write_tokens)
  select $1, $2, 1, $29, $30::bigint, $31::bigint, $32::bigint, $33::bigint, $34::bigint, $35::bigint from f where $30::bigint > 0
  on conflict (tenant_id, session_id, purpose, model) do update
     set calls = u.calls + excluded.calls, input_tokens = u.input_tokens + excluded.input_tokens,
         output_tokens = u.output_tokens + excluded.output_tokens, reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens,
         cache_read_tokens = u.cache_read_tokens + excluded.cache_read_tokens,
         cache_write_tokens = u.cache_write_tokens + excluded.cache_write_tokens)
