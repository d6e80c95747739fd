/** The tools of an MCP server as tools of this host. Needs `@modelcontextprotocol/sdk`. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport, StreamableHTTPError } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { ErrorCode, McpError } from "@modelcontextprotocol/sdk/types.js";
import type { Part } from "./gen/index.js";
import { mediaPart, textPart } from "./parts.js";
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

/** Connects to an MCP server and lists its tools. A connection that was lost is made anew with the next call. */
export async function mcp(server: McpServer): Promise<McpTools> {
  const connection = new Connection(server);
  const close = () => connection.close();
  try {
    const tools = (await connection.definitions()).map((it) => hosted(connection, server, it));
    return { tools, close, [Symbol.asyncDispose]: close };
  } catch (error) {
    await close();
    throw error;
  }
}

class Connection {
  private client: Promise<Client> | undefined;
  private closed = false;

  constructor(private readonly server: McpServer) {}

  async definitions(): Promise<Definition[]> {
    const client = await this.connected();
    const found: Definition[] = [];
    let cursor: string | undefined;
    do {
      const page = await client.listTools({ cursor });
      found.push(...page.tools);
      cursor = page.nextCursor;
    } while (cursor);
    return found;
  }

  async call(name: string, args: Record<string, unknown>, signal: AbortSignal, timeout: number): Promise<Answer> {
    for (let again = false; ; again = true) {
      const used = this.connected();
      try {
        const client = await used;
        return (await client.callTool({ name, arguments: args }, undefined, { signal, timeout })) as Answer;
      } catch (error) {
        if (signal.aborted || (error instanceof McpError && error.code !== ErrorCode.ConnectionClosed)) throw error;
        await this.drop(used);
        // A session that the server does not know has run nothing. Else it is not known whether the tool ran, and the
        // model decides.
        if (again || !(error instanceof StreamableHTTPError && error.code === 404)) throw error;
      }
    }
  }

  async close(): Promise<void> {
    this.closed = true;
    if (this.client) await this.drop(this.client);
  }

  private connected(): Promise<Client> {
    if (this.closed) throw new Error("the connection to the MCP server was closed");
    if (this.client) return this.client;
    const lost = () => {
      if (this.client === made) this.client = undefined;
    };
    const made = this.connect(lost);
    this.client = made;
    made.catch(lost);
    return made;
  }

  private async connect(lost: () => void): Promise<Client> {
    const client = new Client({ name: "contextd", version: "0.1.0" });
    client.onclose = lost;
    try {
      await client.connect(transport(this.server));
    } catch (error) {
      await client.close();
      throw error;
    }
    return client;
  }

  /** Ends a connection, and the process of a server over stdio. */
  private async drop(used: Promise<Client>): Promise<void> {
    if (this.client === used) this.client = undefined;
    await used.then((client) => client.close()).catch(() => {});
  }
}

function transport(server: McpServer): Transport {
  if ("command" in server) return new StdioClientTransport(server);
  const options = { requestInit: { headers: server.headers ?? {} } };
  return new StreamableHTTPClientTransport(new URL(server.url), options) as Transport;
}

interface Definition {
  name: string;
  description?: string;
  inputSchema: object;
}

interface Answer {
  content: Content[];
  structuredContent?: unknown;
  isError?: boolean;
}

function hosted(connection: Connection, server: McpServer, it: Definition): Tool {
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
      const result = await connection.call(it.name, args, signal, timeout ?? 600_000);
      const parts = result.content.map(partOf);
      if (result.isError)
        throw new Error(parts.map((part) => (part.content?.$case === "text" ? part.content.value : "")).join("\n"));
      if (parts.length === 0 && result.structuredContent) return result.structuredContent;
      return parts;
    },
  });
}

/** Most bytes of a medium in a result: the server takes 3 MiB. */
const MOST_MEDIA = 3 * 1024 * 1024;

interface Content {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
}

function partOf(content: Content): Part {
  if (content.type === "text") return textPart(content.text ?? "");
  if ((content.type === "image" || content.type === "audio") && content.data && content.mimeType) {
    const data = Buffer.from(content.data, "base64");
    if (data.length > MOST_MEDIA) return textPart(`[${content.mimeType} of ${data.length} bytes left out: too large]`);
    return mediaPart({ mediaType: content.mimeType, data });
  }
  return textPart(JSON.stringify(content));
}
