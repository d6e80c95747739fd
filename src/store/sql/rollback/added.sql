-- store::rollback::added: what the live messages of a turn add to the counters, a row for each category, with what was measured before it
with t as (
  select t.first_seq, t.anchor_before as a from turns t where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = :turn),
m as (
  select m.message_id, m.tokens
    from t
    join lateral (select * from messages m
                   where m.tenant_id = :tenant and m.session_id = :session and m.seq >= t.first_seq offset 0) m on true
   where m.turn_id = :turn and m.voided_at_seq is null),
-- Results are written before the message that contains them, which is written with the last result of its batch.
i as (
  select m.message_id from m
  union
  select c.result_message_id from tool_calls c where c.tenant_id = :tenant and c.session_id = :session and c.turn_id = :turn and c.status < 3)
select (select count(*) from m)::int as messages, (select coalesce(sum(m.tokens), 0) from m)::bigint as overhead,
       p.category, p.parts, p.tokens, p.pruned, p.saved,
       t.a ->> 'model' as anchor_model, (t.a ->> 'version')::bigint as anchor_version, (t.a ->> 'input')::int as anchor_input,
       (t.a ->> 'output')::int as anchor_output, (t.a ->> 'tokens')::bigint as anchor_tokens, (t.a ->> 'cached')::int as anchor_cached,
       (t.a ->> 'at')::timestamptz as anchor_at, (t.a ->> 'estimated')::int as anchor_estimated, (t.a ->> 'basis')::smallint as anchor_basis
  from t
  left join (
    select p.category, count(*)::int as parts, sum(p.tokens)::bigint as tokens, count(p.pruned_at_seq)::int as pruned,
           coalesce(sum(p.original_tokens - p.tokens) filter (where p.pruned_at_seq is not null), 0)::bigint as saved
      from i
      join lateral (select * from parts p
                     where p.tenant_id = :tenant and p.session_id = :session and p.message_id = i.message_id offset 0) p on true
     group by p.category) p on true
