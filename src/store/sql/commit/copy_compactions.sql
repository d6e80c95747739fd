-- store::commit::copy_compactions: those that had taken effect, as of the seq of the fork
insert into compactions (tenant_id, session_id, compaction_id, status, context_version, begun_at_seq, from_seq, to_seq, active_from_seq,
                         kept, hides_pinned, reverted_at_seq, predecessor, summary_message, delta_messages, delta_overhead, delta_tokens,
                         delta_parts, info, created_at, ended_at)
select :tenant, :session, c.compaction_id, case when c.reverted_at_seq <= :at then 4 else 2 end, c.context_version, c.begun_at_seq,
       c.from_seq, c.to_seq, c.active_from_seq, c.kept, c.hides_pinned, case when c.reverted_at_seq <= :at then c.reverted_at_seq end,
       c.predecessor, c.summary_message, c.delta_messages, c.delta_overhead, c.delta_tokens, c.delta_parts, c.info, c.created_at, c.ended_at
  from compactions c
 where c.tenant_id = :tenant and c.session_id = :source and c.status in (2, 4) and c.active_from_seq <= :at and {accepted}
