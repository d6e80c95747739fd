-- store::message::messages_by_id
with past as (select null::text as message_id, null::int as idx, null::bigint as pruned_at_seq, null::int as tokens where false)
{message_columns}, null::text as compacted_by
  from unnest(:messages::text[]) as u(id)
  join lateral (select n.*, n.seq as place from messages n
                 where n.tenant_id = :tenant and n.session_id = :session and n.message_id = u.id offset 0) m on true
  {message_parts}
 order by m.seq, p.idx
