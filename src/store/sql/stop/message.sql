-- store::turn::stop_message
insert into messages (tenant_id, session_id, seq, message_id, turn_id, role, step, tokens, info)
select r.tenant_id, r.session_id, r.next_seq - 2, o.message_id, r.turn_id, 4, o.step, :closed_overhead::int, ''
  from {head} r, {closing} o
 where o.n > 0
