-- Retention finds whether a configuration refers to a tool set, and so does the foreign key when a tool set is removed.
-- The program before it neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists session_revisions_tool_set on session_revisions (tenant_id, toolset_id);
