-- store::admission::first_revision
insert into session_revisions (tenant_id, session_id, revision, toolset_id, config)
values (:tenant, :session, :revision, :toolset, :config::bytea)
