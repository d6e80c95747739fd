-- store::rows::revision
insert into session_revisions (tenant_id, session_id, revision, toolset_id, config, labels, title)
select r.tenant_id, r.session_id, r.revision, :toolset, :config::bytea, :labels::bytea[], :title::text
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
