-- After the fragment live: what the live transcript adds up to.
live as (select s.message_id, s.tokens, s.is_summary from spoken s union all select s.message_id, s.tokens, s.is_summary from summary s),
{counted}
