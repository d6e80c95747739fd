-- store::message::sizes (what the model sees, newest first)
{live}
select {message_bytes} as bytes
  from {live_before} m
 order by m.place desc, m.seq
