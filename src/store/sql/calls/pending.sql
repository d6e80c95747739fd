-- store::tool_call::open
select c.call_id, c.tool_name, c.status, c.deadline, c.deadline < now() as overdue, coalesce(c.edited_arguments, p.body) as arguments,
       c.edited_arguments is not null as edited, extract(epoch from c.timeout)::float8 as timeout, c.executor,
       r.cancel <> 0 as cancelled
  from session_run r
  join tool_calls c on c.tenant_id = :tenant and c.session_id = :session and c.turn_id = r.turn_id and c.status < 3 and c.deadline is not null
  join parts p on p.tenant_id = :tenant and p.session_id = :session and p.message_id = c.message_id and p.idx = c.part_idx
 where r.tenant_id = :tenant and r.session_id = :session order by c.ord
