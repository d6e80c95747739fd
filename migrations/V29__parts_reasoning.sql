-- The size of a prompt is told without its text: which reasoning is not sent again is asked of the parts that are reasoning, and of no others.
-- The program before it neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists parts_reasoning on parts (tenant_id, session_id, message_id) where kind = 'reasoning';
