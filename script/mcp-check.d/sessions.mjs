// An MCP server built with the official TypeScript SDK 1, with sessions as in the examples of the SDK: sessions.mjs PORT
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { isInitializeRequest } from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';

const transports = {};

function server() {
    const server = new McpServer({ name: 'check', version: '1.0.0' });
    const echo = { description: 'Gives the text back', inputSchema: { text: z.string() } };
    server.registerTool('echo', echo, async ({ text }) => ({ content: [{ type: 'text', text }] }));
    return server;
}

async function body(request) {
    let text = '';
    for await (const chunk of request) text += chunk;
    return text ? JSON.parse(text) : undefined;
}

createServer(async (request, response) => {
    const message = await body(request);
    const session = request.headers['mcp-session-id'];
    let transport = transports[session];
    if (!transport && !session && isInitializeRequest(message)) {
        transport = new StreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: (id) => { transports[id] = transport; },
        });
        await server().connect(transport);
    }
    if (!transport) {
        const error = { code: -32000, message: 'Bad Request: No valid session ID provided' };
        response.writeHead(400, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ jsonrpc: '2.0', error, id: null }));
        return;
    }
    await transport.handleRequest(request, response, message);
}).listen(Number(process.argv[2]), '127.0.0.1');
