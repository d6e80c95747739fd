-- store::message::sizes (what the model sees, oldest first)
{live}
select {message_bytes} as bytes
  from {live_after} m
 order by m.place, m.seq
