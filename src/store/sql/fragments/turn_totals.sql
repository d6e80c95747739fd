array[t.calls, t.input_tokens, t.output_tokens, t.reasoning_tokens, t.cache_read_tokens, t.cache_write_tokens]::bigint[]
