-- store::commit::turn: what a write of the owner changes in the row of its turn
update turns t
   set step_count = coalesce(:step_count::int, t.step_count), final_message = coalesce(:final_message::text, t.final_message),
       request = coalesce(:turn_request::bytea, t.request), model = coalesce(:turn_model::text, t.model),
       {turn_spent}
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = :turn and {accepted}
