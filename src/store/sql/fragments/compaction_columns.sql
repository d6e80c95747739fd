c.compaction_id, c.status, c.from_seq, c.to_seq, c.predecessor, c.summary_message, c.info, c.created_at, c.ended_at,
       (select e.at from events e where e.tenant_id = :tenant and e.session_id = :session and e.seq = c.reverted_at_seq) as reverted_at
