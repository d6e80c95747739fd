-- store::message::messages (what the model sees). With the version of the context, which only the same snapshot can tell.
{live}
{message_columns}, null::text as compacted_by,
       (select r.context_version from session_run r where r.tenant_id = :tenant and r.session_id = :session) as context_version
  from {page} m
  {message_parts}
 order by m.place {order}, m.seq, p.idx
