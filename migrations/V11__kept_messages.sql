-- Messages in the middle of a stretch that a compaction leaves in the prompt: the newest words of a user, the request of a long turn.
-- The program before this one makes no compactions; where it reads one, it takes these messages for compacted.

alter table compactions add column kept bigint[] not null default '{}';
