-- Statistics read only the parts that may hold media: the media themselves, and results that are more than one text.
-- The program before it neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists parts_media on parts (tenant_id, session_id, message_id) where kind in ('media', 'media_url') or (kind = 'tool_result' and rest is not null);
