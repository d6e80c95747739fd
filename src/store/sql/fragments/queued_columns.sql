q.message_id, q.pos, q.status, q.delivery, q.starts_turn, q.request, q.body, q.request_id, q.enqueued_at, q.expires_at,
       (q.expires_at < now()) is true as expired, q.applied_to, q.drop_reason
