-- After live.sql: the next messages of a fork that is copied in batches, with their parts, and what of them is live. A claim whose lease
-- ran out is not renewed: its rows may be gone. Answers one row; `last` is null when nothing is left.
-- $4 new session $5 claim $6 lease (s) $7 copied up to this seq $8 most messages $9 most bytes; one message is copied in any case
, claim as (
  update session_run r set lease_until = clock_timestamp() + make_interval(secs => $6)
   where r.tenant_id = $1 and r.session_id = $4 and r.state = 3 and r.turn_id = $5 and r.lease_until > clock_timestamp()
  returning 1),
next as (
  select n.* from claim, messages n
   where n.tenant_id = $1 and n.session_id = $2 and n.seq > $7 and n.seq <= $3 order by n.seq limit $8),
sized as (
  select n.*, row_number() over w as nth,
         sum(octet_length(n.info)
             + coalesce((select sum(octet_length(p.body) + coalesce(octet_length(p.rest), 0)) from parts p
                          where p.tenant_id = $1 and p.session_id = $2 and p.message_id = n.message_id), 0)) over w as bytes
    from next n window w as (order by n.seq)),
batch as materialized (select s.* from sized s where s.bytes <= $9::bigint or s.nth = 1),
last as materialized (select max(b.seq) as seq from batch b),
live as (
  select s.message_id, s.tokens, s.is_summary from spoken s where s.seq > $7 and s.seq <= (select last.seq from last)
  union all
  select s.message_id, s.tokens, s.is_summary from summary s where s.seq > $7 and s.seq <= (select last.seq from last)),
write_messages as (
  insert into messages (tenant_id, session_id, seq, message_id, turn_id, step, role, tokens, pinned, is_summary, created_at, info,
                        voided_at_seq)
  select $1, $4, m.seq, m.message_id, m.turn_id, m.step, m.role, m.tokens, m.pinned, m.is_summary, m.created_at, m.info,
         case when m.voided_at_seq <= $3 then m.voided_at_seq end
    from batch m),
write_parts as (
  insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator,
                     pruned_at_seq, original_tokens)
  select $1, $4, p.message_id, p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest,
         case when p.pruned_at_seq <= $3 then p.tokens else coalesce(h.tokens, p.original_tokens, p.tokens) end, p.category, p.estimator,
         case when p.pruned_at_seq <= $3 then p.pruned_at_seq else h.pruned_at_seq end,
         case when p.pruned_at_seq <= $3 or h.pruned_at_seq is not null then coalesce(p.original_tokens, p.tokens) end
    from batch m
    join lateral (select * from parts p
                   where p.tenant_id = $1 and p.session_id = $2 and p.message_id = m.message_id offset 0) p on true
    left join past h on h.message_id = p.message_id and h.idx = p.idx),
write_past_prunes as (
  insert into past_prunes (tenant_id, session_id, message_id, idx, pruned_at_seq, restored_at_seq, tokens)
  select $1, $4, h.message_id, h.idx, h.pruned_at_seq, h.restored_at_seq, h.tokens
    from batch m
    join lateral (select * from past_prunes h
                   where h.tenant_id = $1 and h.session_id = $2 and h.message_id = m.message_id offset 0) h on h.restored_at_seq <= $3),
write_blobs as (
  insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
  select $1, $4, b.message_id, b.idx, b.blob_id
    from batch m
    join lateral (select * from part_blobs b
                   where b.tenant_id = $1 and b.session_id = $2 and b.message_id = m.message_id
                   order by b.idx, b.blob_id offset 0) b on true),  -- ordered: by the key, never by blob
