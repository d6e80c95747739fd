,
-- After live.sql: what the live transcript adds up to as of $3, by category; 9 is what pruning has saved.
live as (select s.message_id, s.tokens, s.is_summary from spoken s union all select s.message_id, s.tokens, s.is_summary from summary s),
