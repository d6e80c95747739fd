-- store::commit::apply_compaction: its summary stands at the seq of compaction_completed, the first event. `kept` are the seqs in between
-- that stay, beside those that are pinned unless `hides_pinned`.
update compactions c
   set status = 2, lease_until = null, ended_at = now(), from_seq = :from_seq, to_seq = :to_seq, kept = :kept, hides_pinned = :hides_pinned,
       active_from_seq = :first_seq, predecessor = :predecessor, summary_message = :summary, delta_messages = :applied_messages,
       delta_overhead = :applied_overhead, delta_tokens = :applied_tokens, delta_parts = :applied_parts, info = :applied_info::bytea
 where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = :applied_compaction and {accepted}
