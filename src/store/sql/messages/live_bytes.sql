-- store::message::live_bytes: of what the model sees, without results that were cleared
-- `is true` makes PostgreSQL build a hash table of the messages. Joined, a plan made before the tables have statistics may
-- compare each part with each message.
{live}
select coalesce(sum(octet_length(p.body) + coalesce(octet_length(p.rest), 0)), 0)::bigint as bytes
  from parts p
 where p.tenant_id = :tenant and p.session_id = :session and p.pruned_at_seq is null
   and (p.message_id in (select s.message_id from spoken s union all select s.message_id from summary s)) is true
