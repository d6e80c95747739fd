r.ctx_messages, r.ctx_overhead, r.ctx_tokens, r.ctx_parts
