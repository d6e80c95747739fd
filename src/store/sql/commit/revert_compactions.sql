-- store::commit::revert_compactions
update compactions c
   set status = 4, reverted_at_seq = :reverted_at::bigint
 where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = any(:reverted::text[]) and {accepted}
