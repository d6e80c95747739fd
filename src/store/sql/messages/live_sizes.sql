-- store::message::sizes (what the model sees)
{live}
select {message_bytes} as bytes
  from {page} m
 order by m.place {order}, m.seq
