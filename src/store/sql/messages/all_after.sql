-- store::message::messages (all, oldest first)
{live}
{message_columns}, {compacted_by} as compacted_by
  from {all_after} m
  {message_parts}
 order by m.place, p.idx
