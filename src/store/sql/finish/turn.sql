-- store::turn::end_turn
update turns t
   set state = case when r.state = 0 then 3 else 1 end, ended_at = case when r.state = 0 then now() end,
       last_seq = case when r.state = 0 then r.next_seq - 1 end, outcome = case when r.state = 0 then :outcome::bytea end,
       step_count = :step_count, final_message = coalesce(:final_message, t.final_message),
       {turn_spent}
  from session_run r
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = :turn and r.tenant_id = :tenant and r.session_id = :session and {accepted}
