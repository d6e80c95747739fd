-- The order in which the compactions of a session are listed and the newest one is found; see V16. The program before this one orders them
-- by their ids, and sees nothing of it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists compactions_in_order on compactions
  (tenant_id, session_id, context_version, coalesce(begun_at_seq, 0), created_at, compaction_id);
