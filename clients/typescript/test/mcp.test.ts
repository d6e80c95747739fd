/** Tools of MCP servers. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Contextd, type Tool } from "@contextd/client";
import { mcp } from "@contextd/client/mcp";
import { freePort, Server } from "./server.js";

const stdio = { command: process.execPath, args: ["test/mcp-server.mjs"] };
let server: Server;
let client: Contextd;
before(async () => {
  server = await Server.start();
  client = new Contextd({ url: server.url });
});
after(async () => {
  client.close();
  await server.close();
});

/** Calls a tool as a run does. */
async function call(tools: readonly Tool[], name: string, args: object = {}): Promise<string | undefined> {
  const found = tools.find((it) => it.name === name);
  const context = { callId: "c", toolName: name, sessionId: "s", turnId: "t", signal: new AbortController().signal };
  const [part] = (await found?.run(JSON.stringify(args), context)) ?? [];
  return part?.content?.$case === "text" ? part.content.value : undefined;
}

async function http(port: number): Promise<ChildProcess> {
  const child = spawn(process.execPath, ["test/mcp-server.mjs", String(port)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (child.stdout) await once(child.stdout, "data");
  return child;
}

async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

test("a turn calls a server over stdio", async () => {
  await using tools = await mcp(stdio);
  const session = await client.session();
  assert.equal((await session.run("Well?", { tools: [tools] }).result()).text, "It says: seen 7");
});

test("a turn calls a server over streamable HTTP, with headers", async () => {
  const port = await freePort();
  const child = await http(port);
  try {
    await using tools = await mcp({ url: `http://127.0.0.1:${port}/mcp`, headers: { "X-Test": "well" } });
    const session = await client.session();
    assert.equal((await session.run("Well?", { tools: [tools] }).result()).text, "It says: seen well 7");
  } finally {
    await end(child);
  }
});

test("a server over stdio that died is started again by the next call", async () => {
  await using tools = await mcp({ ...stdio, prefix: "my_" });
  assert.equal(await call(tools.tools, "my_look", { at: 1 }), "seen 1");
  await assert.rejects(call(tools.tools, "my_die"));
  assert.equal(await call(tools.tools, "my_look", { at: 2 }), "seen 2");
});

test("a server over HTTP that was started again is connected to anew, in the same call", async () => {
  const port = await freePort();
  let child = await http(port);
  try {
    await using tools = await mcp({ url: `http://127.0.0.1:${port}/mcp` });
    assert.equal(await call(tools.tools, "look", { at: 1 }), "seen 1");
    await end(child);
    await assert.rejects(call(tools.tools, "look", { at: 2 }));
    child = await http(port);
    assert.equal(await call(tools.tools, "look", { at: 3 }), "seen 3");
    await end(child);
    child = await http(port);
    assert.equal(await call(tools.tools, "look", { at: 4 }), "seen 4");
  } finally {
    await end(child);
  }
});

test("a closed server is not started again", async () => {
  const tools = await mcp(stdio);
  await tools.close();
  await assert.rejects(call(tools.tools, "look", { at: 1 }), /was closed/);
});

test("a server that does not list its tools is an error, and its process is ended", async () => {
  const error = await mcp({ ...stdio, args: [...stdio.args, "broken"] }).catch((it) => it);
  const pid = Number(/process (\d+)/.exec(error.message)?.[1]);
  assert.ok(pid, error.message);
  for (let at = 0; alive(pid) && at < 50; at++) await sleep(100);
  assert.ok(!alive(pid));
});

test("a program that does not start is an error", async () => {
  await assert.rejects(mcp({ command: "no-such-program-at-all" }), /ENOENT/);
});

function alive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
