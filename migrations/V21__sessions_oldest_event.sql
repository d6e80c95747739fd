-- Retention finds the session whose oldest event is the oldest of all.
-- The program before it neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists sessions_oldest_event on sessions (coalesce(events_since, created_at));
