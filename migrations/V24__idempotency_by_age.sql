-- Retention finds the oldest idempotency keys. The BRIN index that was meant for it finds nothing in a table from which rows are removed.
-- The program before it neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists idempotency_by_age on idempotency (at);
