-- Retention finds sessions whose own time to live is over.
-- The program before it neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists session_activity_expiring on session_activity (((updated_at at time zone 'UTC') + ttl)) where ttl is not null;
