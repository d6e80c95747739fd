/** The client against a server. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  Contextd,
  ContextdError,
  InputNotTakenError,
  type RunEvent,
  type ToolContext,
  TurnFailedError,
  tool,
} from "@contextd/client";
import { z } from "zod";
import { Server } from "./server.js";

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

const look = (execute: (args: { at: number }, context: ToolContext) => unknown, more: object = {}) =>
  tool({ name: "look", description: "Looks.", parameters: z.object({ at: z.number() }), execute, ...more });

test("a turn runs a tool and ends with a result", async () => {
  const session = await client.session({ instructions: "Be brief." });
  const events: RunEvent[] = [];
  const run = session.run("Well?", { tools: [look(({ at }) => `${at + 1}`)] });
  for await (const event of run) events.push(event);
  const result = await run.result();
  assert.equal(result.text, "It says: 8");
  assert.equal(result.steps, 2);
  assert.equal(result.reason, "stop");
  assert.ok(result.usage && result.usage.totalTokens > 0);
  const types = new Set(events.map((event) => event.type));
  for (const type of [
    "admitted",
    "turn_started",
    "text_delta",
    "tool_call_requested",
    "tool_call_completed",
    "turn_completed",
  ] as const) {
    assert.ok(types.has(type), type);
  }
  assert.doesNotThrow(() => JSON.stringify(events));
});

test("what a tool throws, and arguments that its schema refuses, are read by the model", async () => {
  const session = await client.session();
  const thrown = session.run("Well?", { tools: [look(() => assert.fail("the lamp is broken"))] });
  assert.match((await thrown.result()).text, /the lamp is broken/);
  const strict = tool({ name: "look", parameters: z.object({ at: z.string() }), execute: () => "never" });
  assert.match((await session.run("Again?", { tools: [strict] }).result()).text, /the arguments are not valid: at: /);
});

test("a tool that takes too long is aborted, and the model reads so", async () => {
  const session = await client.session();
  let aborted = false;
  const slow = tool({
    name: "look",
    timeout: 100,
    execute: (_, { signal }) => new Promise(() => signal.addEventListener("abort", () => (aborted = true))),
  });
  assert.match((await session.run("Well?", { tools: [slow] }).result()).text, /longer than 100 ms/);
  assert.ok(aborted);
});

test("approvals are decided by a callback: with other arguments, or with a reason against", async () => {
  const session = await client.session();
  const tools = [look(({ at }) => `${at}`, { needsApproval: true })];
  const edited = session.run("Well?", { tools, approve: (call) => ({ arguments: { at: call.toolName.length } }) });
  assert.match((await edited.result()).text, /4$/);
  const denied = session.run("Well?", { tools, approve: () => ({ deny: "not on Sundays" }) });
  assert.match((await denied.result()).text, /not on Sundays/);
});

test("a failed turn rejects its result with the reason", async () => {
  const session = await client.session({ model: "scripted/fails" });
  const error = await session
    .run("Well?")
    .result()
    .catch((it) => it);
  assert.ok(error instanceof TurnFailedError);
  assert.equal(error.reason, "provider_bad_request");
});

test("an abort signal cancels the turn", async () => {
  const session = await client.session({ model: "scripted/slow" });
  const stop = new AbortController();
  const run = session.run("Go", { signal: stop.signal });
  for await (const event of run) if (event.type === "text_delta") stop.abort();
  const result = await run.result();
  assert.equal(result.status, "cancelled");
  assert.match(result.text, /^on /);
});

test("a signal that is aborted from the beginning cancels the turn", async () => {
  const session = await client.session({ model: "scripted/slow" });
  const result = await session.run("Go", { signal: AbortSignal.abort() }).result();
  assert.equal(result.status, "cancelled");
});

test("a run that waits is withdrawn, and the turn before it goes on", async () => {
  const session = await client.session({ model: "scripted/slow" });
  const first = session.run("Go");
  for await (const event of first) if (event.type === "text_delta") break;
  const second = session.run("And then?");
  await second.cancel();
  const error = await second.result().catch((it) => it);
  assert.ok(error instanceof InputNotTakenError);
  assert.equal(error.outcome, "cancelled");
  assert.equal((await session.get()).state, "running");
  await first.cancel();
  assert.equal((await first.result()).status, "cancelled");
});

test("errors have reason and fields", async () => {
  const missing = await client.open("nowhere").catch((it) => it);
  assert.ok(missing instanceof ContextdError);
  assert.equal(missing.reason, "SESSION_NOT_FOUND");
  const invalid = await client.session({ id: "with spaces" }).catch((it) => it);
  assert.equal(invalid.reason, "INVALID_REQUEST");
  assert.equal(invalid.fields[0]?.field, "session_id");
});

test("a session is created once, and what is given later is in force too", async () => {
  const tools = [look(() => "")];
  const first = await client.session({ id: "twice", instructions: "One.", metadata: { of: "one" }, tools });
  const second = await client.session({ id: "twice", instructions: "Two.", tools: [] });
  assert.equal(first.id, second.id);
  const stored = await second.get();
  assert.equal(stored.systemPrompt, "Two.");
  assert.deepEqual(stored.tools?.hostTools, []);
  assert.deepEqual(stored.metadata, { of: "one" });
  assert.equal((await client.session({ id: "twice" })).id, "twice");
  assert.equal((await second.get()).systemPrompt, "Two.");
});

test("hosts that create a session at the same time get the same one", async () => {
  const made = await Promise.all(
    ["One.", "Two.", "Three."].map((instructions) => client.session({ id: "raced", instructions })),
  );
  assert.deepEqual(new Set(made.map((it) => it.id)), new Set(["raced"]));
});

test("a turn that another process left is taken up with its waiting call", async () => {
  const session = await client.session();
  const first = session.run("Well?", { tools: [look(() => new Promise(() => {}))] });
  for await (const event of first) if (event.type === "action_required") break;
  first.detach();
  await using other = new Contextd({ url: server.url });
  const second = await (await other.open(session.id)).resume({ tools: [look(() => "found")] });
  assert.equal((await second?.result())?.text, "It says: found");
});

test("a run that was left is resumed in the same process, and its call is not run again", async () => {
  let ran = 0;
  let aborted = false;
  let finish = (_: string) => {};
  const late = new Promise<string>((resolve) => (finish = resolve));
  const tools = [
    look((_, { signal }) => {
      ran += 1;
      signal.addEventListener("abort", () => (aborted = true));
      return late;
    }),
  ];
  const session = await client.session({ tools });
  const first = session.run("Well?");
  for await (const event of first) if (event.type === "action_required") break;
  first.detach();
  const second = await session.resume();
  finish("late");
  assert.equal((await second?.result())?.text, "It says: late");
  assert.deepEqual([ran, aborted], [1, false]);
});

test("results of closed calls are not kept, and the calls that are known are bounded", async () => {
  // biome-ignore lint/suspicious/noExplicitAny: internal
  const ledger = (client.rpc as any).ledger;
  const start = async () => ({ callId: "c", parts: [] });
  await ledger.run("s", "c", start);
  ledger.close("s", "c");
  assert.equal(ledger.calls.get("s c"), undefined);
  assert.equal((await ledger.run("s", "c", () => assert.fail("it runs again"))).outcome, "error");
  const waiting = ledger.run("s", "waits", () => new Promise(() => {}));
  for (let at = 0; at < 10_010; at++) await ledger.run("s", `c${at}`, start);
  assert.equal(ledger.calls.size, 10_000);
  assert.equal(ledger.run("s", "waits", start), waiting);
});

test("stats, messages, fork, send, watch", async () => {
  const session = await client.session();
  await session.run("Hello").result();
  assert.ok((await session.stats()).used?.tokens);
  const roles = [];
  for await (const message of session.messages()) roles.push(message.role);
  assert.deepEqual(roles, ["user", "assistant"]);
  const fork = await session.fork();
  assert.notEqual(fork.id, session.id);
  const queued = await session.send("Later");
  assert.equal(queued.position, 1);
  let said = "";
  for await (const event of session.watch({ follow: false })) if (event.type === "text_delta") said += event.text;
  assert.equal(said, "You said: Hello");
});

test("a loop of one's own prepares and records in the AI SDK's format", async () => {
  const session = await client.session({ instructions: "Be brief." });
  await session.record([{ role: "user", content: "Hello" }], { format: "ai_sdk" });
  const prepared = await session.prepare({ format: "ai_sdk" });
  assert.equal(prepared.request.system, "Be brief.");
  assert.equal(prepared.request.messages.length, 1);
  const { request } = await session.prepare({ format: "ai_sdk_7" });
  assert.equal(request.instructions, "Be brief.");
  const usage = { inputTokens: 20, outputTokens: 3 };
  await session.record([{ role: "assistant", content: "Hi." }], { format: "ai_sdk", prepared, usage });
  assert.equal((await session.stats()).used?.basis, "actual");
});

test("a prompt above 2 MiB is prepared too", async () => {
  const session = await client.session({ model: "scripted/large" });
  const content = "all work and no play ".repeat(45_000);
  for (const role of ["user", "assistant", "user"]) await session.record([{ role, content }], { format: "ai_sdk" });
  const { request } = await session.prepare({ format: "ai_sdk" });
  assert.deepEqual(
    request.messages.map((it: { role: string }) => it.role),
    ["user", "assistant", "user"],
  );
  assert.ok(JSON.stringify(request).length > 2 ** 21);
});
