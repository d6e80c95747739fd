-- store::rollback::over: the compactions that stand for messages of a turn, the newest first
select c.compaction_id, c.delta_messages, c.delta_overhead, c.delta_tokens, c.delta_parts
  from turns t
  join compactions c on c.tenant_id = :tenant and c.session_id = :session and c.status = 2 and c.to_seq >= t.first_seq
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = :turn
 order by c.active_from_seq desc
