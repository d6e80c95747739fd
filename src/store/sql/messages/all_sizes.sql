-- store::message::sizes (all)
select {message_bytes} as bytes
  from {page} m
 order by m.place {order}
