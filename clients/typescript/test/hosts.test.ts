/** Several hosts. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Contextd } from "@contextd/client";
import { SessionServiceDefinition } from "@contextd/client/proto";
import { fake } from "./fake.js";

test("several hosts take turns, and one that is away is passed over", async () => {
  const asked: string[] = [];
  const host = (name: string) =>
    fake([
      SessionServiceDefinition,
      SessionServiceDefinition.methods.getSession,
      (_, reply) => {
        asked.push(name);
        reply(null, {});
      },
    ]);
  const [a, b] = await Promise.all([host("a"), host("b")]);
  await using client = new Contextd({ url: `${a.url},${b.url}` });
  for (let at = 0; at < 4; at++) await client.open("s");
  assert.equal(asked.sort().join(""), "aabb");
  a.close();
  asked.length = 0;
  for (let at = 0; at < 4; at++) await client.open("s");
  assert.equal(asked.join(""), "bbbb");
  b.close();
});
