-- What stood in force and what the model saw, as of a seq. Prompts, lists and forks are made of this and of nothing else, so that they
-- cannot differ. Marks that were made later are ignored; `past` has those that were taken back later.
-- `at` is the seq; the largest bigint: now.
with past as materialized (
  select h.message_id, h.idx, h.pruned_at_seq, h.tokens
    from past_prunes h
   where h.tenant_id = :tenant and h.session_id = :session and h.pruned_at_seq <= :at and h.restored_at_seq > :at and :at < 9223372036854775807),
stack as (
  select c.compaction_id, c.from_seq, c.to_seq, c.kept, c.hides_pinned, c.active_from_seq, c.summary_message
    from compactions c
   where c.tenant_id = :tenant and c.session_id = :session and c.status = 2 and c.active_from_seq <= :at
  union all
  select c.compaction_id, c.from_seq, c.to_seq, c.kept, c.hides_pinned, c.active_from_seq, c.summary_message
    from compactions c
   where c.tenant_id = :tenant and c.session_id = :session and c.status = 4 and c.active_from_seq <= :at and c.reverted_at_seq > :at
     and :at < 9223372036854775807),
in_force as (select k.* from stack k order by k.active_from_seq desc limit 1),
spoken as not materialized (
  select n.*, n.seq as place
    from messages n
   where n.tenant_id = :tenant and n.session_id = :session and n.seq <= :at and not n.is_summary
     and (n.voided_at_seq is null or n.voided_at_seq > :at)
     and (n.pinned and (select k.hides_pinned from in_force k) is not true or n.seq = any ((select k.kept from in_force k)::bigint[])
          or (n.seq between (select k.from_seq from in_force k) and (select k.to_seq from in_force k)) is not true)),
summary as not materialized (
  select n.*, k.from_seq as place
    from in_force k join messages n on n.tenant_id = :tenant and n.session_id = :session and n.message_id = k.summary_message)
