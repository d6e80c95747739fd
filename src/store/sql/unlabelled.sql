-- store::session_labels::unlabelled
select v.tenant_id, v.session_id, v.revision, v.config
  from session_revisions v
 where v.labels is null
 order by v.tenant_id, v.session_id, v.revision limit :most
