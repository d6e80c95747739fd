(select {added} as delta, ('step_started' = any(:kinds::text[]))::int as first)
