-- store::commit::turn: what a write of the owner changes in the row of its turn
update turns t
   set step_count = coalesce(:step_count::int, t.step_count), final_message = coalesce(:final_message::text, t.final_message),
       request = coalesce(:turn_request::bytea, t.request), model = coalesce(:turn_model::text, t.model),
       state = coalesce(:turn_state::smallint, t.state), outcome = coalesce(:outcome::bytea, t.outcome),
       ended_at = case when :turn_state::smallint is null then t.ended_at else now() end,
       last_seq = coalesce(:turn_last_seq::bigint, t.last_seq),
       {turn_spent}
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = :turn and {accepted}
returning {turn_totals} as totals
