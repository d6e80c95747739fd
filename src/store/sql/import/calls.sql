-- store::import::import_calls: they are not requested: they belong to no turn, wait without a deadline (1), and their results are
-- appended as well
insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id,
                        ord, timeout, closed_at)
select r.tenant_id, r.session_id, u.id, '', 0, case when u.result = '' then 1 else 3 end, u.name, u.message, u.part, u.result, u.ord, '0',
       case when u.result <> '' then now() end
  from session_run r,
       unnest(:call_ids::text[], :call_names::text[], :call_messages::text[], :call_parts::int[], :result_messages::text[],
              :result_parts::int[])
         as u(id, name, message, part, result, ord)
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
