-- store::turn::append_turn
update turns t
   set step_count = r.step, final_message = coalesce(:final_message, t.final_message),
       {turn_spent}
  from {head} r
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = r.turn_id
