-- store::session_labels::label
update session_revisions v set labels = :labels::bytea[], title = :title
 where v.tenant_id = :tenant and v.session_id = :session and v.revision = :revision and v.labels is null
