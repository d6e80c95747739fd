-- The last measured call, and the version of the context that it may be true of.
r.context_version, r.anchor_model, r.anchor_version, r.anchor_input, r.anchor_output, r.anchor_tokens, r.anchor_estimated,
       r.anchor_basis, case when now() - r.anchor_at < interval '5 minutes' then r.anchor_cached end as anchor_cached
