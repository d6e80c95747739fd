-- store::turn_read::owned
select r.version, r.step, r.attempt, r.takeovers, r.open_calls, r.cancel, r.cancel_cause, r.cancel_reason, r.next_seq, {counter_columns},
       {anchor_columns},
       coalesce(extract(epoch from r.turn_deadline - now()), 0)::float8 as time_left, now() as read_at,
       t.started_at, t.trace, t.request, t.step_count, t.final_message, {turn_totals} as totals,
       v.revision, v.config, s.tools,
       octet_length(v.config) + octet_length(s.tools) as config_bytes, octet_length(t.request) as request_bytes,
       coalesce(e.at >= r.turn_deadline, false) as late,
       {more_waits} as waiting,
       w.revision as newer_revision, w.config as newer_config, u.tools as newer_tools
  from session_run r
  join turns t on t.tenant_id = :tenant and t.session_id = :session and t.turn_id = r.turn_id
  left join {made_for}
  left join session_revisions w on w.tenant_id = :tenant and w.session_id = :session and w.revision = r.revision and w.revision <> v.revision
  left join toolsets u on u.tenant_id = :tenant and u.toolset_id = w.toolset_id
 where r.tenant_id = :tenant and r.session_id = :session and r.epoch = :epoch and r.state = 1 and r.owner = :owner and r.turn_id = :turn
