-- store::compaction_read::list
select {compaction_columns}
      from compactions c
     where c.tenant_id = :tenant and c.session_id = :session
       and (:before::text is null or row({compaction_order}) < (select {compaction_order} from compactions c where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = :before))
     order by {newest_compaction_first} limit :limit
