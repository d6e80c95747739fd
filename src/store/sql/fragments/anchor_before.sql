case when r.anchor_version = r.context_version
                 then jsonb_build_object('version', r.anchor_version, 'model', r.anchor_model, 'input', r.anchor_input,
                                         'output', r.anchor_output, 'tokens', r.anchor_tokens, 'cached', r.anchor_cached,
                                         'at', r.anchor_at, 'estimated', r.anchor_estimated, 'basis', r.anchor_basis) end
