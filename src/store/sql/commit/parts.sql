-- store::commit::parts
insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator)
select :tenant, :session, u.message, u.idx, u.kind, u.call, u.name, u.outcome, u.body, u.rest, u.tokens, u.category, :estimator
  from unnest(:part_messages::text[], :part_positions::int[], :part_kinds::text[], :part_calls::text[], :part_names::text[],
              :part_outcomes::smallint[], :part_bodies::text[], :part_rests::bytea[], :part_tokens::int[], :part_categories::smallint[])
         as u(message, idx, kind, call, name, outcome, body, rest, tokens, category)
 where {accepted}
