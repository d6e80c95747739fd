-- store::compaction_read::one
select {compaction_columns}
      from compactions c
     where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = :compaction
