c.context_version desc, coalesce(c.begun_at_seq, 0) desc, c.created_at desc, c.compaction_id desc
