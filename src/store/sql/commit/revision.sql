-- store::commit::revision
insert into session_revisions (tenant_id, session_id, revision, toolset_id, config, labels, title)
select :tenant, :session, :revision::bigint, :toolset, :config::bytea, :labels::bytea[], :title::text
 where {accepted}
