-- store::commit::result_message: the message that holds the results of a batch
insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, info)
select :tenant, :session, :message_seq, :message, :turn, 4, :message_step, :message_overhead, ''
 where {accepted}
