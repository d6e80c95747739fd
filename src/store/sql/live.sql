-- What stood in force and what the model saw, as of a seq. Prompts, lists and forks are made of this and of nothing else, so that they
-- cannot differ. Marks that were made later are ignored; `past` has those that were taken back later.
-- $1, $2 session $3 the seq; the largest bigint: now
with past as materialized (
  select h.message_id, h.idx, h.pruned_at_seq, h.tokens
    from past_prunes h
   where h.tenant_id = $1 and h.session_id = $2 and h.pruned_at_seq <= $3 and h.restored_at_seq > $3 and $3 < 9223372036854775807),
stack as (
  select c.compaction_id, c.from_seq, c.to_seq, c.kept, c.active_from_seq, c.summary_message
    from compactions c
   where c.tenant_id = $1 and c.session_id = $2 and c.status = 2 and c.active_from_seq <= $3
  union all
  select c.compaction_id, c.from_seq, c.to_seq, c.kept, c.active_from_seq, c.summary_message
    from compactions c
   where c.tenant_id = $1 and c.session_id = $2 and c.status = 4 and c.active_from_seq <= $3 and c.reverted_at_seq > $3
     and $3 < 9223372036854775807),
in_force as (select k.* from stack k order by k.active_from_seq desc limit 1),
spoken as not materialized (
  select n.*, n.seq as place
    from messages n
   where n.tenant_id = $1 and n.session_id = $2 and n.seq <= $3 and not n.is_summary
     and (n.voided_at_seq is null or n.voided_at_seq > $3)
     and (n.pinned or n.seq = any ((select k.kept from in_force k)::bigint[])
          or (n.seq between (select k.from_seq from in_force k) and (select k.to_seq from in_force k)) is not true)),
summary as not materialized (
  select n.*, k.from_seq as place
    from in_force k join messages n on n.tenant_id = $1 and n.session_id = $2 and n.message_id = k.summary_message)
