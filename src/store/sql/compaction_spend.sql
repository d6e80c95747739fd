-- store::compaction::spend
with spent as (
  select case when r.state in (1, 2) then r.turn_id end as turn_id
    from compactions c join session_run r on r.tenant_id = :tenant and r.session_id = :session and r.state <> 3
   where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = :compaction and c.status = 1 and :calls::bigint > 0
     and (:given_up::boolean or c.context_version = r.context_version)),
write_turn as (
  update turns t
     set {turn_spent}
    from spent s where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = s.turn_id)
insert into usage_totals as u (tenant_id, session_id, purpose, model, calls, input_tokens, output_tokens, reasoning_tokens,
                               cache_read_tokens, cache_write_tokens)
select :tenant, :session, 2, :model, :calls::bigint, :input_tokens::bigint, :output_tokens::bigint, :reasoning_tokens::bigint, :cache_read_tokens::bigint, :cache_write_tokens::bigint from spent
{usage_added}
returning 1
