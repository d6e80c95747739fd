/** Only an explicit yes lets a call run that needs approval. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Contextd, type Decision, tool } from "@contextd/client";
import { Server } from "./server.js";

let server: Server;
let client: Contextd;
const logged: string[] = [];

before(async () => {
  server = await Server.start();
  const log = { info() {}, warn() {}, error: (message: string, error: unknown) => logged.push(`${message}: ${error}`) };
  client = new Contextd({ url: server.url, log });
});
after(async () => {
  client?.close();
  await server?.close();
});

const ANSWERS: [name: string, answer: () => unknown, runs: boolean][] = [
  ["true", () => true, true],
  ["{ arguments: {...} }", () => ({ arguments: { at: 1 } }), true],
  ["a promise of true", async () => true, true],
  ["false", () => false, false],
  ["{ deny }", () => ({ deny: "no" }), false],
  ["undefined", () => undefined, false],
  ["null", () => null, false],
  ['"no"', () => "no", false],
  ['"yes"', () => "yes", false],
  ["1", () => 1, false],
  ["{}", () => ({}), false],
  ["{ approved: false }", () => ({ approved: false }), false],
  ["{ approved: true }", () => ({ approved: true }), false],
  ["{ approved: false, arguments }", () => ({ approved: false, arguments: { at: 1 } }), false],
  ["{ arguments: undefined }", () => ({ arguments: undefined }), false],
  ['{ arguments: "no" }', () => ({ arguments: "no" }), false],
  ["[]", () => [], false],
  ["[false]", () => [false], false],
  ["a promise of a promise of false", () => Promise.resolve(Promise.resolve(false)), false],
  ["a function", () => () => true, false],
  [
    "an exception",
    () => {
      throw new Error("the password is 1234");
    },
    false,
  ],
];

for (const [name, answer, runs] of ANSWERS) {
  test(`${name} ${runs ? "lets the call run" : "does not let the call run"}`, async () => {
    let ran = false;
    const look = tool({
      name: "look",
      needsApproval: true,
      execute: () => {
        ran = true;
        return "seen";
      },
    });
    const session = await client.session();
    const result = await session.run("Well?", { tools: [look], approve: answer as () => Decision }).result();
    assert.equal(ran, runs);
    assert.ok(!result.text.includes("1234"));
  });
}

test("a callback without a decision is logged", () => {
  assert.ok(logged.some((line) => /look was denied: the approval callback failed.*approve returned "?/.test(line)));
  assert.ok(logged.some((line) => line.includes("the password is 1234")));
});

test("an exception of a tool is logged with its trace", async () => {
  const errors: unknown[] = [];
  await using other = new Contextd({
    url: server.url,
    log: { info() {}, warn() {}, error: (message, error) => errors.push(message, error) },
  });
  const look = tool({
    name: "look",
    execute: () => {
      throw new RangeError("out of range");
    },
  });
  const { text } = await (await other.session()).run("Well?", { tools: [look] }).result();
  assert.match(text, /out of range/);
  assert.match(String(errors[0]), /^tool look failed \(call .+, session .+\)$/);
  assert.ok(errors[1] instanceof RangeError && errors[1].stack?.includes("approval.test"));
});
