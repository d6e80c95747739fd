// An MCP server built with the official TypeScript SDK 2, only for revision 2026-07-28: stateless.mjs PORT
import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';
import { z } from 'zod';

function server() {
    const server = new McpServer({ name: 'check', version: '1.0.0' });
    const echo = { description: 'Gives the text back', inputSchema: z.object({ text: z.string() }) };
    server.registerTool('echo', echo, async ({ text }) => ({ content: [{ type: 'text', text }] }));
    return server;
}

const handler = toNodeHandler(createMcpHandler(server, { legacy: 'reject' }));
createServer(handler).listen(Number(process.argv[2]), '127.0.0.1');
