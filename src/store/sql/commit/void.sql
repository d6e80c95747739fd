-- store::commit::void: the messages of a turn that is taken back, those that were written right before too
update messages m
   set voided_at_seq = :turn_last_seq::bigint
  from turns t
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = :turn and m.tenant_id = :tenant and m.session_id = :session
   and m.seq between t.first_seq and :turn_last_seq::bigint and m.turn_id = :turn and m.voided_at_seq is null and {accepted}
