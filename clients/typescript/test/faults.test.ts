/** A turn of three steps with tools, through what can break: every word once, every call once. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Contextd, tool } from "contextd";
import { cutting, Server, WORDS } from "./server.js";

const ROUNDS = Number(process.env.CONTEXTD_TEST_ROUNDS ?? 3);
const OUTAGE = Number(process.env.CONTEXTD_TEST_OUTAGE_MS ?? 3_000);
const EXPECTED = `first things first then the second and a third ${WORDS}`;
let server: Server;

before(async () => {
  server = await Server.start();
});
after(() => server.close());

/** Runs the turn; `strike` breaks something when so many pieces of text were yielded. */
async function round(url: string, strike: (() => Promise<void>) | undefined, at: number): Promise<void> {
  const client = new Contextd({ url });
  const ran: string[] = [];
  const make = (name: string) =>
    tool({
      name,
      parameters: { type: "object", properties: { at: { type: "integer" } } },
      execute: async (args, context) => {
        ran.push(`${name} ${args.at} ${context.callId}`);
        await sleep(30);
        return `${name} ${args.at}`;
      },
    });
  const session = await client.session({ model: "scripted/steps", tools: [make("look"), make("list")] });
  const run = session.run("Go");
  let said = "";
  let pieces = 0;
  let struck: Promise<void> | undefined;
  for await (const event of run) {
    assert.notEqual(event.type, "discarded");
    if (event.type !== "text_delta") continue;
    said += event.text;
    pieces += 1;
    if (pieces >= at && strike && !struck) struck = strike();
  }
  await struck;
  const result = await run.result();
  assert.equal(said, EXPECTED);
  assert.equal(result.text, WORDS);
  assert.equal(result.reason, "stop");
  const calls = ran.map((line) => line.split(" ").slice(0, 2).join(" ")).sort();
  assert.deepEqual(calls, ["list 0", "list 1", "list 2", "look 0", "look 1", "look 2"]);
  assert.equal(new Set(ran).size, 6);
  client.close();
}

test("a turn goes on after kill -9 of its replica", async () => {
  for (let at = 0; at < ROUNDS; at++) {
    const strike = async () => {
      await server.down("SIGKILL");
      await server.up();
    };
    await round(server.url, strike, 1 + ((at * 7) % 20));
  }
});

test("a turn goes on after a drain", async () => {
  for (let at = 0; at < ROUNDS; at++) {
    const strike = async () => {
      await server.down("SIGTERM");
      await server.up();
    };
    await round(server.url, strike, 1 + ((at * 7) % 20));
  }
});

test("a turn goes on over connections that are cut every 200 ms", async () => {
  const proxy = await cutting(server.port, 200);
  for (let at = 0; at < ROUNDS; at++) await round(proxy.url, undefined, 0);
  assert.ok(proxy.cuts() >= 3 * ROUNDS, `${proxy.cuts()} cuts`);
  proxy.close();
});

test("a turn goes on after a time without a server", async () => {
  for (let at = 0; at < Math.min(ROUNDS, Number(process.env.CONTEXTD_TEST_OUTAGES ?? 1)); at++) {
    const strike = async () => {
      await server.down("SIGKILL");
      await sleep(OUTAGE);
      await server.up();
    };
    await round(server.url, strike, 1 + ((at * 7) % 20));
  }
});
