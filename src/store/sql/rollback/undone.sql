-- store::rollback::undone
select array(select m.message_id from messages m
              where m.tenant_id = :tenant and m.session_id = :session and m.seq >= t.first_seq and m.turn_id = t.turn_id
                and m.voided_at_seq is null order by m.seq) as messages,
       (select min(c.result_message_id) from tool_calls c
         where c.tenant_id = :tenant and c.session_id = :session and c.turn_id = t.turn_id and c.status < 3) as closing,
       array(select c.call_id from tool_calls c
              where c.tenant_id = :tenant and c.session_id = :session and c.turn_id = t.turn_id and c.status = 3
              order by c.step, c.ord) as executed
  from turns t where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = :turn
