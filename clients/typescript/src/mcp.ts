/** The tools of an MCP server as tools of this host. Needs `@modelcontextprotocol/sdk`. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Part } from "./gen/index.js";
import { textPart } from "./parts.js";
import { type Tool, tool } from "./tools.js";

/** A program to start (stdio), or an address (streamable HTTP). */
export type McpServer = (
  | { command: string; args?: string[]; env?: Record<string, string>; cwd?: string }
  | { url: string | URL; headers?: Record<string, string> }
) & {
  /** Goes before the names of its tools. */
  prefix?: string;
  /** Milliseconds that each of its calls may take. */
  timeout?: number;
  /** Ask a person before each call. */
  needsApproval?: boolean;
};

/** Tools of an MCP server that is connected: `tools: [await mcp({ command: "npx", args: [...] })]`. */
export interface McpTools extends AsyncDisposable {
  readonly tools: readonly Tool[];
  close(): Promise<void>;
}

/** Connects to an MCP server and lists its tools. */
export async function mcp(server: McpServer): Promise<McpTools> {
  const client = new Client({ name: "contextd", version: "0.1.0" });
  await client.connect(
    "command" in server
      ? new StdioClientTransport(server)
      : (new StreamableHTTPClientTransport(new URL(server.url), {
          requestInit: { headers: server.headers ?? {} },
        }) as Parameters<Client["connect"]>[0]),
  );
  const tools: Tool[] = [];
  let cursor: string | undefined;
  do {
    const page = await client.listTools({ cursor });
    for (const it of page.tools) tools.push(hosted(client, server, it));
    cursor = page.nextCursor;
  } while (cursor);
  const close = () => client.close();
  return { tools, close, [Symbol.asyncDispose]: close };
}

function hosted(
  client: Client,
  server: McpServer,
  it: { name: string; description?: string; inputSchema: object },
): Tool {
  const name = `${server.prefix ?? ""}${it.name}`.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);
  const { timeout, needsApproval } = server;
  return tool({
    name,
    description: it.description,
    parameters: it.inputSchema as Record<string, unknown>,
    timeout,
    needsApproval,
    category: "mcp_tools",
    async execute(args, { signal }) {
      const options = { signal, timeout: timeout ?? 600_000 };
      const result = await client.callTool({ name: it.name, arguments: args }, undefined, options);
      const parts = (result.content as Content[]).map(partOf);
      if (result.isError)
        throw new Error(parts.map((part) => (part.content?.$case === "text" ? part.content.value : "")).join("\n"));
      if (parts.length === 0 && result.structuredContent) return result.structuredContent;
      return parts;
    },
  });
}

interface Content {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
}

function partOf(content: Content): Part {
  if (content.type === "text") return textPart(content.text ?? "");
  if ((content.type === "image" || content.type === "audio") && content.data && content.mimeType) {
    const media = {
      mediaType: content.mimeType,
      source: { $case: "data" as const, value: Buffer.from(content.data, "base64") },
      filename: "",
      sizeBytes: 0,
      width: 0,
      height: 0,
    };
    return { ...textPart(""), content: { $case: "media", value: media } };
  }
  return textPart(JSON.stringify(content));
}
