-- store::commit::fail_compaction
update compactions c
   set status = 3, lease_until = null, ended_at = now(), info = coalesce(:failed_info::bytea, c.info)
 where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = :failed_compaction and {accepted}
