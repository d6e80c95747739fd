-- store::commit::spend
insert into usage_totals as u (tenant_id, session_id, purpose, model, calls, input_tokens, output_tokens, reasoning_tokens,
                               cache_read_tokens, cache_write_tokens)
select :tenant, :session, :purpose::smallint, :model, :calls::bigint, :input_tokens::bigint, :output_tokens::bigint, :reasoning_tokens::bigint,
       :cache_read_tokens::bigint, :cache_write_tokens::bigint
 where {accepted}
{usage_added}
