-- store::session::session: `revision` null: with the configuration in force
select s.session_id, s.created_at, s.forked_from, s.forked_at_seq, s.events_from, a.updated_at, r.state, r.turn_id, {holder}, r.next_seq, v.revision,
       {counter_columns}, r.open_calls, v.config, t.tools, t.tokens as tools_tokens, {anchor_columns},
       {model_dependent},
       (select count(*) from queue q where q.tenant_id = :tenant and q.session_id = :session and q.status = 0)::int as queued,
       k.compactions, k.compacted_at, k.compacting
  from sessions s
  cross join {compactions_known} k
  join session_run r on r.tenant_id = :tenant and r.session_id = :session and r.state <> 3
  join session_activity a on a.tenant_id = :tenant and a.session_id = :session
  join session_revisions v on v.tenant_id = :tenant and v.session_id = :session
   and v.revision = coalesce(:revision::bigint, r.revision)
  join toolsets t on t.tenant_id = :tenant and t.toolset_id = v.toolset_id
 where s.tenant_id = :tenant and s.session_id = :session
