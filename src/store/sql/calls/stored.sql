-- store::tool_call::calls
select c.call_id, c.turn_id, c.step, c.tool_name, c.status, c.deadline is not null as asked, c.edited_arguments, c.answer_hash,
       case when c.status < 3 then
         (select count(*)::int from tool_calls o where o.tenant_id = :tenant and o.session_id = :session and o.turn_id = c.turn_id and o.status < 3)
       else 0 end as open,
       case when c.status < 3 then
         (select coalesce(sum(p.tokens), 0)::int from parts p where p.tenant_id = :tenant and p.session_id = :session and p.message_id = c.result_message_id)
       else 0 end as waiting
  from tool_calls c where c.tenant_id = :tenant and c.session_id = :session and c.call_id = any(:calls)
