-- store::answers::open: the calls of the live turn that have no result yet, in the order the model made them
select c.call_id, c.tool_name, c.step, c.ord, c.result_message_id, c.status, c.deadline, extract(epoch from c.timeout)::float8 as timeout,
       c.edited_arguments is not null as edited, c.request, c.executor
  from session_run r
  join tool_calls c on c.tenant_id = :tenant and c.session_id = :session and c.turn_id = r.turn_id and c.status < 3
 where r.tenant_id = :tenant and r.session_id = :session
 order by c.ord
