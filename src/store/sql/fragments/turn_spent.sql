calls = t.calls + :calls::bigint,
       input_tokens = t.input_tokens + :input_tokens::bigint, output_tokens = t.output_tokens + :output_tokens::bigint,
       reasoning_tokens = t.reasoning_tokens + :reasoning_tokens::bigint,
       cache_read_tokens = t.cache_read_tokens + :cache_read_tokens::bigint,
       cache_write_tokens = t.cache_write_tokens + :cache_write_tokens::bigint
