-- store::commit::import_calls: they are not requested: they belong to no turn, wait without a deadline (1), and their results are appended
-- as well
insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id,
                        ord, timeout, closed_at)
select :tenant, :session, u.id, '', 0, case when u.result = '' then 1 else 3 end, u.name, u.message, u.part, u.result, u.ord, '0',
       case when u.result <> '' then now() end
  from unnest(:imported_calls::text[], :imported_names::text[], :imported_messages::text[], :imported_parts::int[],
              :imported_results::text[], :imported_positions::int[])
         as u(id, name, message, part, result, ord)
 where {accepted}
