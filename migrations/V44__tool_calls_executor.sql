-- Who runs a tool: 1 the host, 2 contextd on an MCP server (contextd.v1.ToolExecutor). The program before this one writes 1 by the default,
-- and shows calls of MCP servers as the host's; it starts none of them, so that such a call ends at its deadline.
-- oldest-program: 13
alter table tool_calls add column executor smallint not null default 1;
