-- The turns that need an owner are found without reading those that wait for their tools: there may be many of these. That a turn begins to
-- wait, and goes on, is no HOT update any more; what an owner writes between the two is.
-- Older programs neither use nor miss it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists session_run_due on session_run (state, tool_deadline) where live;
