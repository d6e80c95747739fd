-- store::message::live_bytes: of what the model sees, without results that were cleared
{live}
select coalesce(sum(octet_length(p.body) + coalesce(octet_length(p.rest), 0)), 0)::bigint as bytes
  from (select s.message_id from spoken s union all select s.message_id from summary s) m
  join parts p on p.tenant_id = :tenant and p.session_id = :session and p.message_id = m.message_id and p.pruned_at_seq is null
