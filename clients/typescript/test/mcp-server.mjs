// An MCP server with one tool, over stdio.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const server = new McpServer({ name: "eyes", version: "1.0.0" });
const config = { description: "Looks.", inputSchema: { at: z.number() } };
server.registerTool("look", config, ({ at }) => ({ content: [{ type: "text", text: `seen ${at}` }] }));
await server.connect(new StdioServerTransport());
