-- Which submission of results or approvals requested a call: a replica whose answer was lost finds by it which calls of MCP servers it has to
-- begin. The program before this one leaves it null and sees nothing of it; such a call ends at its deadline, as before.
-- oldest-program: 13
alter table tool_calls add column requested_by text;
