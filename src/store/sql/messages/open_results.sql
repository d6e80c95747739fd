-- store::message::open_results
select p.kind, p.call_id, p.tool_name, p.outcome, '' as body, p.rest, p.category, p.estimator, p.tokens
  from parts p
 where p.tenant_id = :tenant and p.session_id = :session and p.rest is not null
   and p.message_id = (select c.result_message_id
                         from session_run r
                         join tool_calls c on c.tenant_id = :tenant and c.session_id = :session and c.turn_id = r.turn_id and c.status < 3
                        where r.tenant_id = :tenant and r.session_id = :session and r.open_calls > 0 limit 1)
 order by p.idx
