-- store::message::variable: the variable parts of the live transcript, with the messages that say where a tool loop begins: what the
-- user sent last before each of some seqs, and the summary; if neither exists, the first message. `bare_reasoning`:
-- size in bytes of reasoning with nothing attached.
{live},
speaks as (
  select s.message_id
    from unnest(:before::bigint[]) as b(seq)
   cross join lateral (select n.message_id from spoken n where n.role = 2 and n.seq < b.seq order by n.seq desc limit 1) s
  union
  select s.message_id from summary s),
marks as (
  select k.message_id from speaks k
  union all
  (select s.message_id from spoken s where not exists (select from speaks) order by s.seq limit 1))
{message_columns}, null::text as compacted_by, p.attached
  from ({media_part}
        union all
        {reasoning_part} and :with_reasoning
        union all
        {item_part}
        union all
        select k.message_id, null, null, null, null, null, null, null, null, null, null, null, null, null from marks k) p
  join lateral (select s.* from spoken s where s.message_id = p.message_id
                union all
                select s.* from summary s where s.message_id = p.message_id offset 0) m on true
  left join past h on h.message_id = p.message_id and h.idx = p.idx
 order by m.place, m.seq, p.idx
