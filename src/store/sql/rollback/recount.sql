-- store::rollback::recount: the counters are what the live transcript adds up to. What was measured before the turn is known again, if the prompt is that one
-- again: nothing moved the context's version meanwhile but compactions that went back with the turn. What the turn measured is forgotten.
-- `epoch` and `op` are those of the statement before. A repetition counts the same.
{live},
{size},
before as (
  select t.anchor_before as a
    from session_run r join turns t on t.tenant_id = :tenant and t.session_id = :session and t.turn_id = r.turn_id
   where r.tenant_id = :tenant and r.session_id = :session
     and (r.context_version = (t.anchor_before ->> 'version')::bigint
          + (select count(*) from compactions c where c.tenant_id = :tenant and c.session_id = :session and c.reverted_at_seq = t.last_seq)
          -- It is known already: this is the repetition of a statement whose answer was lost.
          or r.anchor_version = r.context_version and r.anchor_at = (t.anchor_before ->> 'at')::timestamptz)),
f as (
  update session_run r
     set context_version = r.context_version + 1, ctx_tokens = z.overhead + z.tokens,
         anchor_version = case when b.a is not null then r.context_version + 1 end, anchor_model = b.a ->> 'model',
         anchor_input = (b.a ->> 'input')::int, anchor_output = (b.a ->> 'output')::int, anchor_tokens = (b.a ->> 'tokens')::bigint,
         anchor_cached = (b.a ->> 'cached')::int, anchor_at = (b.a ->> 'at')::timestamptz,
         anchor_estimated = (b.a ->> 'estimated')::int, anchor_basis = (b.a ->> 'basis')::smallint
    from size z left join before b on true
   where r.tenant_id = :tenant and r.session_id = :session and r.epoch = :epoch and r.op = :op::bigint + 1 and r.state = 0
     and r.written_by = :owner and r.turn_id = :turn and {accepted}
  returning r.state, r.cancel, r.next_seq),
write_context as (
  update session_context c
     set messages = z.messages, overhead_tokens = z.overhead, user_tokens = z.t1, user_parts = z.n1, assistant_tokens = z.t2,
         assistant_parts = z.n2, reasoning_tokens = z.t3, reasoning_parts = z.n3, tool_call_tokens = z.t4, tool_call_parts = z.n4,
         tool_result_tokens = z.t5, tool_result_parts = z.n5, media_tokens = z.t6, media_parts = z.n6, summary_tokens = z.t7,
         summary_parts = z.n7, pinned_tokens = z.t8, pinned_parts = z.n8, pruned_tokens = z.t9, pruned_parts = z.n9
    from f, size z where c.tenant_id = :tenant and c.session_id = :session)
select f.state, f.cancel, f.next_seq from f
