-- store::commit::copy_calls: all are closed, as the transcript is. Whoever answers one again is told that it is too late.
insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id, ord,
                        timeout, requested_at, deadline, edited_arguments, closed_at, answer_hash)
select :tenant, :session, c.call_id, c.turn_id, c.step, c.status, c.tool_name, c.message_id, c.part_idx, c.result_message_id, c.ord, c.timeout,
       c.requested_at, c.deadline, c.edited_arguments, c.closed_at, c.answer_hash
  from messages m
  join lateral (select p.call_id from parts p
                 where p.tenant_id = :tenant and p.session_id = :source and p.message_id = m.message_id and p.kind = 'tool_call' offset 0) p on true
  join lateral (select * from tool_calls c
                 where c.tenant_id = :tenant and c.session_id = :source and c.call_id = p.call_id offset 0) c
       on c.message_id = m.message_id and c.status >= 3
 where m.tenant_id = :tenant and m.session_id = :source and m.seq > :copied_after and m.seq <= :copied_up_to and {accepted}
