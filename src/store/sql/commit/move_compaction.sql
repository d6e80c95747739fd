-- store::commit::move_compaction: the one that is being made is of the context's new version
update compactions c
   set context_version = :moved_to::bigint
 where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = :moved_compaction and {accepted}
