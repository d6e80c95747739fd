(select count(*) as n, case when count(*) > 0 then 1 else 0 end as batch, min(c.result_message_id) as message_id, min(c.step) as step
          from tool_calls c
         where c.tenant_id = :tenant and c.session_id = :session and c.turn_id = :turn and c.status < 3)
