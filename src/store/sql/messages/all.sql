-- store::message::messages (all)
{live}
{message_columns}, {compacted_by} as compacted_by
  from {page} m
  {message_parts}
 order by m.place {order}, p.idx
