-- store::commit::copy_messages: a piece of what the source of a fork said, as of the seq of the fork
insert into messages (tenant_id, session_id, seq, message_id, turn_id, step, role, tokens, pinned, is_summary, created_at, info, voided_at_seq)
select :tenant, :session, m.seq, m.message_id, m.turn_id, m.step, m.role, m.tokens, m.pinned, m.is_summary, m.created_at, m.info,
       case when m.voided_at_seq <= :at then m.voided_at_seq end
  from messages m
 where m.tenant_id = :tenant and m.session_id = :source and m.seq > :copied_after and m.seq <= :copied_up_to and {accepted}
