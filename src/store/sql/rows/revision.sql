-- store::rows::revision
insert into session_revisions (tenant_id, session_id, revision, toolset_id, config)
select r.tenant_id, r.session_id, r.revision, :toolset, :config::bytea
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session
