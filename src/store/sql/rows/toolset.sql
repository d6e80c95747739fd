-- store::rows::toolset
insert into toolsets (tenant_id, toolset_id, tools, tokens, estimator)
values (:tenant, :toolset, :tools::bytea, :tools_tokens::int, :estimator)
on conflict do nothing
