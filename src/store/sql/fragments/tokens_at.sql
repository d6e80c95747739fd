case when p.pruned_at_seq <= :at then p.tokens else coalesce(h.tokens, p.original_tokens, p.tokens) end
