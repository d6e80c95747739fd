-- store::event::results
select c.call_id, p.kind, p.tool_name, p.outcome, p.body, p.rest, p.tokens, p.category, p.estimator,
       coalesce(extract(epoch from c.closed_at - c.requested_at), 0)::float8 as elapsed
  from unnest(:calls::text[]) as u(id)
  join lateral (select * from tool_calls c
                 where c.tenant_id = :tenant and c.session_id = :session and c.call_id = u.id offset 0) c on true
  join lateral (select * from parts p
                 where p.tenant_id = :tenant and p.session_id = :session and p.message_id = c.result_message_id and p.idx = c.ord offset 0) p on true
