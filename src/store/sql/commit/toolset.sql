-- store::commit::toolset
insert into toolsets (tenant_id, toolset_id, tools, tokens, estimator)
select :tenant, :toolset, :tools::bytea, :tools_tokens::int, :tools_estimator
 where {accepted}
on conflict do nothing
