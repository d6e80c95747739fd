-- store::message::messages (what the model sees, oldest first, up to the part with which it comes to `most_bytes`). With the version of the
-- context, which must be read in the same snapshot.
{live},
page as (
  {message_columns}, null::text as compacted_by,
         (select r.context_version from session_run r where r.tenant_id = :tenant and r.session_id = :session) as context_version,
         sum(octet_length(p.body) + coalesce(octet_length(p.rest), 0))
           over (order by m.place, m.seq, p.idx rows between unbounded preceding and 1 preceding) as bytes_before
    from {live_after} m
    {message_parts})
select * from page x where coalesce(x.bytes_before, 0) < :most_bytes order by x.place, x.seq, x.idx
