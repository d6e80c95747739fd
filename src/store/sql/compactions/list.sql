-- store::compaction_read::list
select {compaction_columns}
      from compactions c
     where c.tenant_id = :tenant and c.session_id = :session
       and (:before::text is null or c.begun_at_seq < (select b.begun_at_seq from compactions b
            where b.tenant_id = :tenant and b.session_id = :session and b.compaction_id = :before))
     order by c.begun_at_seq desc limit :limit
