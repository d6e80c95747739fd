-- Replaced by idempotency_by_age; nothing has ever read it.
-- The program before it neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
drop index concurrently if exists idempotency_at;
