/** Events that wait for whoever reads a run. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Contextd, type Run } from "@contextd/client";
import { SessionServiceDefinition, TurnServiceDefinition } from "@contextd/client/proto";
import { fake } from "./fake.js";

const STEPS = 5_000;
let server: Awaited<ReturnType<typeof fake>>;
let client: Contextd;

before(async () => {
  server = await fake(
    [SessionServiceDefinition, SessionServiceDefinition.methods.getSession, (_, reply) => reply(null, {})],
    [
      TurnServiceDefinition,
      TurnServiceDefinition.methods.executeTurn,
      (request, stream) => {
        const event = (seq: number, $case: string, value: object) =>
          stream.write({ event: { seq, sessionId: "s", turnId: "t", payload: { $case, value } } });
        event(0, "admitted", { admission: "started" });
        for (let seq = request.afterSeq + 1; seq <= STEPS; seq++) event(seq, "stepStarted", {});
        event(STEPS + 1, "turnCompleted", { reason: "stop" });
        stream.end();
      },
    ],
  );
  client = new Contextd({ url: server.url });
});
after(() => {
  client.close();
  server.close();
});

// biome-ignore lint/suspicious/noExplicitAny: internal
const waiting = (run: Run) => (run as any).buffer.length;

test("a run whose result alone is awaited keeps no events", async () => {
  const run = (await client.open("s")).run("Go");
  assert.equal((await run.result()).reason, "stop");
  assert.equal(waiting(run), 0);
  await assert.rejects(run[Symbol.asyncIterator]().next(), /came before the run was iterated/);
});

test("a consumer that is slow slows the stream down and misses nothing", async () => {
  const run = (await client.open("s")).run("Go");
  let steps = 0;
  for await (const event of run) {
    if (event.type !== "step_started") continue;
    steps += 1;
    if (steps % 1_000 === 0) await sleep(100);
    assert.ok(waiting(run) <= 2_048, `${waiting(run)} wait`);
  }
  assert.equal(steps, STEPS);
  assert.equal((await run.result()).reason, "stop");
});
