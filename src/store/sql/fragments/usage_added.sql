on conflict (tenant_id, session_id, purpose, model) do update
   set calls = u.calls + excluded.calls, input_tokens = u.input_tokens + excluded.input_tokens,
       output_tokens = u.output_tokens + excluded.output_tokens, reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens,
       cache_read_tokens = u.cache_read_tokens + excluded.cache_read_tokens,
       cache_write_tokens = u.cache_write_tokens + excluded.cache_write_tokens
