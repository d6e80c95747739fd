-- store::compaction_read::newest
select {compaction_columns}, c.context_version
      from compactions c
     where c.tenant_id = :tenant and c.session_id = :session order by c.begun_at_seq desc limit 1
