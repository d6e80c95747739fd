anchor_version = coalesce((:measured::bigint[])[1], r.anchor_version),
       anchor_input = coalesce((:measured::bigint[])[2]::int, r.anchor_input),
       anchor_output = coalesce((:measured::bigint[])[3]::int, r.anchor_output),
       anchor_tokens = coalesce((:measured::bigint[])[4], r.anchor_tokens),
       anchor_cached = coalesce((:measured::bigint[])[5]::int, r.anchor_cached),
       anchor_estimated = coalesce((:measured::bigint[])[6]::int, r.anchor_estimated),
       anchor_basis = coalesce((:measured::bigint[])[7]::smallint, r.anchor_basis),
       anchor_model = case when (:measured::bigint[]) is null then r.anchor_model else :model end,
       anchor_at = case when (:measured::bigint[]) is null then r.anchor_at else now() end,
       growth = case when r.anchor_model = :model and r.anchor_version = (:measured::bigint[])[1] and (:measured::bigint[])[2] >= r.anchor_input
                     then coalesce(0.7 * r.growth + 0.3 * ((:measured::bigint[])[2] - r.anchor_input), (:measured::bigint[])[2] - r.anchor_input)
                     else r.growth end
