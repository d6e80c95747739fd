-- Retention finds the queued messages that ended first.
-- The program before it neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists queue_ended on queue (ended_at) where ended_at is not null;
