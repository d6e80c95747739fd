-- store::compaction::standing: where one compaction stands, and the one in force with what it changed in the counters
select (select c.status from compactions c
         where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = :compaction) as status,
       k.compaction_id, k.delta_messages, k.delta_overhead, k.delta_tokens, k.delta_parts
  from (values (1)) as one
  left join {in_force} k on true
