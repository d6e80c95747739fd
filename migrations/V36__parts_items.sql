-- The size of a prompt is told without its text: which items of a provider's own are not sent to a model is asked of the parts that are such
-- items, and of no others. The program before it neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists parts_items on parts (tenant_id, session_id, message_id) where kind = 'provider_item';
