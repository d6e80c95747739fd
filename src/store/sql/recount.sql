,
-- The counters are what the live transcript adds up to; what was known of its size is forgotten.
-- $4 epoch and $5 op of the statement before $6 its owner $7 its turn
f as (
  update session_run r
     set context_version = r.context_version + 1, ctx_tokens = z.overhead + z.tokens, anchor_input = null, anchor_output = null,
         anchor_version = null, anchor_tokens = null
    from size z
   where r.tenant_id = $1 and r.session_id = $2 and r.epoch = $4 and r.op = $5::bigint + 1 and r.state = 0
     and r.written_by = $6 and r.turn_id = $7
  returning r.state, r.cancel, r.next_seq),
write_context as (
  update session_context c
     set messages = z.messages, overhead_tokens = z.overhead, user_tokens = z.t1, user_parts = z.n1, assistant_tokens = z.t2,
         assistant_parts = z.n2, reasoning_tokens = z.t3, reasoning_parts = z.n3, tool_call_tokens = z.t4, tool_call_parts = z.n4,
         tool_result_tokens = z.t5, tool_result_parts = z.n5, media_tokens = z.t6, media_parts = z.n6, summary_tokens = z.t7,
         summary_parts = z.n7, pinned_tokens = z.t8, pinned_parts = z.n8, pruned_tokens = z.t9, pruned_parts = z.n9
    from f, size z where c.tenant_id = $1 and c.session_id = $2)
select f.state, f.cancel, f.next_seq from f
