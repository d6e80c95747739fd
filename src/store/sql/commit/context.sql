-- store::commit::context: what changes in the counters of the context
update session_context c
   set {context_shifted}
  from (select :shift_messages::int as messages, :shift_overhead::bigint as overhead, :shift_tokens::bigint[] as tokens,
               :shift_parts::int[] as parts) s
 where c.tenant_id = :tenant and c.session_id = :session and {accepted}
