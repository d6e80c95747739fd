-- store::stats::stats
select r.next_seq, r.state, r.step + case when r.open_calls > 0 then 1 else 0 end as step, r.epoch, r.op, r.revision, r.growth, {counter_columns},
       {anchor_columns}, {model_dependent},
       v.config, t.tools,
       array(select octet_length(q.body) from queue q where q.tenant_id = :tenant and q.session_id = :session and q.status = 0) as queued,
       array(select row(u.purpose, u.model, u.calls, u.input_tokens, u.output_tokens, u.reasoning_tokens, u.cache_read_tokens,
                        u.cache_write_tokens)
               from usage_totals u where u.tenant_id = :tenant and u.session_id = :session order by u.purpose, u.model limit 100) as usage,
       array(select row(n.turn_id, case when n.state = 1 then r.step else n.step_count end, n.calls, n.input_tokens,
                        n.output_tokens, n.reasoning_tokens, n.cache_read_tokens, n.cache_write_tokens)
               from turns n where n.tenant_id = :tenant and n.session_id = :session order by n.first_seq desc limit 10) as turns,
       (select n.request from turns n where n.tenant_id = :tenant and n.session_id = :session order by n.first_seq desc limit 1) as request,
       array(select case when k.status = 2 then k.delta_messages end
               from compactions k where k.tenant_id = :tenant and k.session_id = :session) as compactions
  from session_run r
  join session_revisions v on v.tenant_id = :tenant and v.session_id = :session and v.revision = r.revision
  join toolsets t on t.tenant_id = :tenant and t.toolset_id = v.toolset_id
 where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3
