-- store::fork::copy_messages: the next messages of a fork that is copied in batches, with their parts, and what of them is live. A claim whose lease
-- ran out is not renewed: its rows may be gone. Nothing is copied of another session that was made under the source's id: `sources` is 0.
-- Answers one row; `last` is null when nothing is left.
-- `after`: copied up to this seq. One message is copied however large it is.
{live},
source as (
  select 1 from sessions s where s.tenant_id = :tenant and s.session_id = :session and s.created_at = :source_created),
claim as (
  update session_run r set lease_until = clock_timestamp() + make_interval(secs => :lease)
    from source
   where r.tenant_id = :tenant and r.session_id = :new_session and r.state = 3 and r.turn_id = :claim and r.lease_until > clock_timestamp()
  returning 1),
next as (
  select n.* from claim, messages n
   where n.tenant_id = :tenant and n.session_id = :session and n.seq > :after and n.seq <= :at order by n.seq limit :most_messages),
sized as (
  select n.*, row_number() over w as nth,
         sum(octet_length(n.info)
             + coalesce((select sum(octet_length(p.body) + coalesce(octet_length(p.rest), 0)) from parts p
                          where p.tenant_id = :tenant and p.session_id = :session and p.message_id = n.message_id), 0)) over w as bytes
    from next n window w as (order by n.seq)),
batch as materialized (select s.* from sized s where s.bytes <= :most_bytes::bigint or s.nth = 1),
last as materialized (select max(b.seq) as seq from batch b),
live as (
  select s.message_id, s.tokens, s.is_summary from spoken s where s.seq > :after and s.seq <= (select last.seq from last)
  union all
  select s.message_id, s.tokens, s.is_summary from summary s where s.seq > :after and s.seq <= (select last.seq from last)),
write_messages as (
  insert into messages (tenant_id, session_id, seq, message_id, turn_id, step, role, tokens, pinned, is_summary, created_at, info,
                        voided_at_seq)
  select :tenant, :new_session, m.seq, m.message_id, m.turn_id, m.step, m.role, m.tokens, m.pinned, m.is_summary, m.created_at, m.info,
         case when m.voided_at_seq <= :at then m.voided_at_seq end
    from batch m),
write_parts as (
  insert into parts (tenant_id, session_id, message_id, idx, kind, call_id, tool_name, outcome, body, rest, tokens, category, estimator,
                     pruned_at_seq, original_tokens)
  select :tenant, :new_session, p.message_id, p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest,
         {tokens_at}, p.category, p.estimator,
         {pruned_seq_at},
         case when p.pruned_at_seq <= :at or h.pruned_at_seq is not null then coalesce(p.original_tokens, p.tokens) end
    from batch m
    join lateral (select * from parts p
                   where p.tenant_id = :tenant and p.session_id = :session and p.message_id = m.message_id offset 0) p on true
    left join past h on h.message_id = p.message_id and h.idx = p.idx),
write_past_prunes as (
  insert into past_prunes (tenant_id, session_id, message_id, idx, pruned_at_seq, restored_at_seq, tokens)
  select :tenant, :new_session, h.message_id, h.idx, h.pruned_at_seq, h.restored_at_seq, h.tokens
    from batch m
    join lateral (select * from past_prunes h
                   where h.tenant_id = :tenant and h.session_id = :session and h.message_id = m.message_id offset 0) h on h.restored_at_seq <= :at),
write_blobs as (
  insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
  select :tenant, :new_session, b.message_id, b.idx, b.blob_id
    from batch m
    join lateral (select * from part_blobs b
                   where b.tenant_id = :tenant and b.session_id = :session and b.message_id = m.message_id
                   order by b.idx, b.blob_id offset 0) b on true),  -- ordered: by the key, never by blob
{counted}
select (select count(*) from source) as sources, (select count(*) from claim) as claims, (select last.seq from last) as last, z.messages::int as messages,
       z.overhead::bigint as overhead, array[z.t1, z.t2, z.t3, z.t4, z.t5, z.t6, z.t7, z.t8, z.t9]::bigint[] as tokens,
       array[z.n1, z.n2, z.n3, z.n4, z.n5, z.n6, z.n7, z.n8, z.n9]::int[] as parts
       from size z
