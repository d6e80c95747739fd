-- store::message::messages (all, newest first)
{live}
{message_columns}, {compacted_by} as compacted_by
  from {all_before} m
  {message_parts}
 order by m.place desc, p.idx
