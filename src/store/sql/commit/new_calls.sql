-- store::commit::new_calls: the time of those that nobody is asked about yet has not begun; they keep the event that will ask
insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id,
                        ord, timeout, requested_at, deadline, request, closed_at, executor)
select :tenant, :session, u.id, :turn, :step, u.status, u.name, :calls_message, u.part, :results_message, u.ord,
       make_interval(secs => u.timeout), case when u.request is null then now() end,
       case when u.request is null then now() + make_interval(secs => u.timeout) end, u.request, case when u.closed then now() end, u.executor
  from unnest(:call_ids::text[], :call_names::text[], :call_parts::int[], :call_ords::int[], :call_timeouts::float8[],
              :call_statuses::smallint[], :call_requests::bytea[], :call_closed::boolean[], :call_executors::smallint[])
         as u(id, name, part, ord, timeout, status, request, closed, executor)
 where {accepted}
