-- store::commit::compaction: one that is being made is of the context's new version
update compactions c
   set context_version = :context_version::bigint
 where c.tenant_id = :tenant and c.session_id = :session and c.status = 1 and c.context_version = :context_version::bigint - 1 and {accepted}
