returning message_id, status, applied_to, drop_reason, pos, enqueued_at, expires_at)
-- What it met, under the gate's lock: a look of this statement's own would be older (V13).
select q.*, m.state, m.turn_id, m.position from queued q cross join queue_met(:tenant, :session, q.pos) m
