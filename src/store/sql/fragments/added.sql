(select coalesce(sum(t), 0) from unnest(:message_tokens::int[]) t) + (select coalesce(sum(t), 0) from unnest(:part_tokens::int[]) t)
