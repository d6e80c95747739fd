-- Queued messages whose time passed are found without reading those that may still wait.
-- Older programs neither use nor miss it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists queue_expired on queue (expires_at) where status = 0 and expires_at is not null;
