-- store::turn::stop_turn
update turns t
   set state = :turn_state::smallint, ended_at = now(), last_seq = r.next_seq - 1, outcome = :outcome::bytea,
       step_count = :step_count, final_message = coalesce(:final_message, t.final_message),
       {turn_spent}
  from session_run r
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = :turn and r.tenant_id = :tenant and r.session_id = :session and {accepted}
