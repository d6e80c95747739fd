-- store::message::sizes (all, newest first)
select {message_bytes} as bytes
  from {all_before} m
 order by m.place desc
