// An MCP server for tests: over stdio, or over HTTP on the port that is given. `broken` lists no tools.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { isInitializeRequest, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";

const [mode] = process.argv.slice(2);

function make(headers = {}) {
  const server = new McpServer({ name: "eyes", version: "1.0.0" });
  const config = { description: "Looks.", inputSchema: { at: z.number() } };
  const seen = ["seen", headers["x-test"]].filter(Boolean).join(" ");
  server.registerTool("look", config, ({ at }) => ({ content: [{ type: "text", text: `${seen} ${at}` }] }));
  server.registerTool("die", { description: "Dies." }, () => process.exit(1));
  if (mode === "broken") {
    server.server.setRequestHandler(ListToolsRequestSchema, () => {
      throw new Error(`process ${process.pid} has no list`);
    });
  }
  return server;
}

const sessions = new Map();

async function handle(request, response) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = pieces.length ? JSON.parse(Buffer.concat(pieces)) : undefined;
  let transport = sessions.get(request.headers["mcp-session-id"]);
  if (!transport && !isInitializeRequest(body)) return response.writeHead(404).end("no such session");
  if (!transport) {
    const onsessioninitialized = (id) => sessions.set(id, transport);
    transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
    await make(request.headers).connect(transport);
  }
  await transport.handleRequest(request, response, body);
}

if (Number(mode)) createServer(handle).listen(Number(mode), "127.0.0.1", () => console.log("listens"));
else await make().connect(new StdioServerTransport());
