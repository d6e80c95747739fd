-- A compaction may hide pinned messages, where a prompt would not fit the window otherwise; then `kept` has the pinned messages that stay.
-- The program before it still sends the pinned messages of such a compaction: its next turn there is too large, as it was before.
-- oldest-program: 13
alter table compactions add column hides_pinned boolean not null default false;
