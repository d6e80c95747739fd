insert into session_revisions (tenant_id, session_id, revision, toolset_id, config, labels, title)
  select :tenant, :new_session, :revision, v.toolset_id, v.config, v.labels, v.title
    from f, source s join session_revisions v on v.tenant_id = :tenant and v.session_id = :session and v.revision = s.revision
