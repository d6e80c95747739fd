select m.place, m.seq, m.message_id, m.turn_id, m.step, m.role, m.pinned, m.is_summary, m.tokens as overhead, m.created_at,
       m.info, case when m.voided_at_seq <= :at then m.voided_at_seq end as voided_at_seq,
       p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest, p.category, p.estimator,
       coalesce(p.original_tokens, p.tokens) as original_tokens,
       {tokens_at} as tokens,
       {pruned_seq_at} as pruned_at_seq,
       case when p.pruned_at_seq <= :at or h.pruned_at_seq is not null then
         (select e.at from events e
           where e.tenant_id = :tenant and e.session_id = :session and e.seq = {pruned_seq_at}) end as pruned_at
