-- store::message::sizes (all, oldest first)
select {message_bytes} as bytes
  from {all_after} m
 order by m.place
