/**
 * A turn of three steps with tools, through kills, drains, cuts and times without a server: every word, every event and
 * every call once. CONTEXTD_FAULT_ROUNDS says how many rounds of each (3 by default), CONTEXTD_FAULT_AWAY for how many
 * seconds there is no server (3 by default), CONTEXTD_FAULT_PARALLEL how many rounds of a fault run at the same time,
 * each with servers of its own (1 by default).
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Contextd, type RunEvent, type RunResult, tool } from "@contextd/client";
import { cutting, Fleet, Server, WORDS } from "./server.js";

const number = (name: string, usual: number) => Number(process.env[name] || usual);
const ROUNDS = number("CONTEXTD_FAULT_ROUNDS", 3);
const AWAY = number("CONTEXTD_FAULT_AWAY", 3) * 1_000;
const PARALLEL = number("CONTEXTD_FAULT_PARALLEL", 1);
/** What a turn of the script takes by itself, a little less. */
const TURN = 1_000;
/** After which a round has failed. */
const PATIENCE = 180_000 + AWAY;
const fleets: Fleet[] = [];

before(async () => {
  while (fleets.length < Math.min(PARALLEL, ROUNDS)) fleets.push(await Fleet.start());
});
after(() => Promise.all(fleets.map((it) => it.close())));

/** What a host saw of a turn. */
class Seen {
  said = "";
  seqs: number[] = [];
  discarded = 0;
  reconnects = 0;
  calls: string[] = [];
  results: string[] = [];
  result: RunResult | undefined;

  see(event: RunEvent): void {
    if (event.type === "reconnecting") this.reconnects += 1;
    else if (event.seq > 0) this.seqs.push(event.seq);
    if (event.type === "text_delta") this.said += event.text;
    if (event.type === "discarded") this.discarded += 1;
    if (event.type === "tool_call_completed") {
      const [part] = event.result?.parts ?? [];
      this.results.push(part?.content?.$case === "text" ? part.content.value : "");
    }
  }

  check(): void {
    assert.equal(this.said, `first things first then the second and a third ${WORDS}`);
    assert.equal(this.discarded, 0);
    const first = this.seqs[0] ?? 0;
    assert.deepEqual(
      this.seqs,
      this.seqs.map((_, at) => first + at),
      "the events are not one after the other",
    );
    const calls = ["list 0", "list 1", "list 2", "look 0", "look 1", "look 2"];
    assert.deepEqual(this.calls.sort(), calls);
    assert.deepEqual(this.results.sort(), calls);
    const { status, reason, text, steps } = this.result ?? {};
    assert.deepEqual([status, reason, text, steps], ["completed", "stop", WORDS, 4]);
  }
}

/** Runs the turn, with a fault meanwhile. */
async function through(url: string, fault: () => Promise<void>): Promise<Seen> {
  const seen = new Seen();
  const make = (name: string) =>
    tool({
      name,
      parameters: { type: "object", properties: { at: { type: "integer" } } },
      execute: async (args) => {
        seen.calls.push(`${name} ${args.at}`);
        await sleep(30);
        return `${name} ${args.at}`;
      },
    });
  await using client = new Contextd({ url });
  const session = await client.session({ model: "scripted/steps", tools: [make("look"), make("list")] });
  const run = session.run("Go");
  const follow = async () => {
    for await (const event of run) seen.see(event);
    seen.result = await run.result();
  };
  await within(PATIENCE, Promise.all([follow(), fault()]));
  seen.check();
  return seen;
}

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  const late = new AbortController();
  const limit = sleep(ms, undefined, { signal: late.signal }).then(() => {
    throw new Error("the turn does not end");
  });
  limit.catch(() => {});
  return Promise.race([work, limit]).finally(() => late.abort());
}

/** Runs all rounds, as many at the same time as there are fleets, and fails if one of them does. */
async function rounds(name: string, work: (fleet: Fleet, at: number) => Promise<Seen>): Promise<void> {
  let next = 0;
  const failed: Error[] = [];
  const each = async (fleet: Fleet) => {
    while (next < ROUNDS) {
      const at = next++;
      await fleet.up();
      try {
        const { reconnects } = await work(fleet, at);
        console.log(`${name}-${at}: ${reconnects} reconnects`);
      } catch (error) {
        console.log(`${name}-${at} failed, its servers:\n${fleet.logs()}`);
        failed.push(new Error(`${name}-${at}`, { cause: error }));
      }
    }
  };
  await Promise.all(fleets.map(each));
  if (failed.length > 0) throw new AggregateError(failed, `${failed.length} of ${ROUNDS} rounds failed`);
}

const someTime = () => sleep(50 + Math.random() * TURN);
/** Both replicas, so that one of them is the turn's. */
const inTurn = ({ replicas }: Fleet, at: number) => (at % 2 ? replicas : replicas.toReversed());

test("a turn goes on after kill -9 of its replica", () =>
  rounds("kill", (fleet, at) =>
    through(fleet.url, async () => {
      await someTime();
      for (const victim of inTurn(fleet, at)) {
        await victim.down("SIGKILL");
        await sleep(300);
        await victim.up();
      }
    }),
  ));

test("a turn goes on after a drain", () =>
  rounds("drain", (fleet, at) =>
    through(fleet.url, async () => {
      await someTime();
      for (const victim of inTurn(fleet, at)) {
        await victim.down("SIGTERM");
        await victim.up();
      }
    }),
  ));

test("a turn goes on over connections that are cut every 200 ms", () =>
  rounds("cut", async (fleet, at) => {
    const proxy = await cutting(fleet.replicas[at % 2]?.port ?? 0, 200);
    try {
      const seen = await through(proxy.url, async () => {});
      assert.ok(seen.reconnects >= 3, `${seen.reconnects} reconnects`);
      return seen;
    } finally {
      proxy.close();
    }
  }));

test("a turn goes on after a time without a server", () =>
  rounds("away", (fleet) =>
    through(fleet.url, async () => {
      await someTime();
      await Promise.all(fleet.replicas.map((it) => it.down("SIGKILL")));
      await sleep(AWAY);
      await fleet.up();
    }),
  ));

test("a turn goes on after kill -9 of the only server and its database", async () => {
  const server = await Server.start();
  try {
    for (let at = 0; at < Math.min(ROUNDS, 2); at++) {
      await through(server.url, async () => {
        await someTime();
        await server.down("SIGKILL");
        await server.up();
      });
    }
  } finally {
    await server.close();
  }
});
