/** What a tool returns, as parts of its result. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { mediaPart, tool } from "@contextd/client";

const context = { callId: "c", toolName: "t", sessionId: "s", turnId: "t", signal: new AbortController().signal };

async function returned(value: unknown) {
  const made = await tool({ name: "t", execute: () => value }).run("{}", context);
  return made.map(({ content }) => (content?.$case === "media" ? content.value.mediaType : content?.value));
}

test("p12: a tool returns a picture, alone or beside texts", async () => {
  const picture = mediaPart({ mediaType: "image/png", data: new Uint8Array([137, 80, 78, 71]) });
  assert.deepEqual(await returned(picture), ["image/png"]);
  assert.deepEqual(await returned(["A chart:", picture]), ["A chart:", "image/png"]);
  assert.ok(picture.content?.$case === "media" && picture.content.value.source?.$case === "data");
  assert.equal(picture.content.value.source.value.length, 4);
});

test("a list of strings alone is JSON, as before", async () => {
  assert.deepEqual(await returned(["a", "b"]), ['["a","b"]']);
});

test("a medium has one source", () => {
  assert.throws(() => mediaPart({ mediaType: "image/png" }), TypeError);
  assert.throws(() => mediaPart({ mediaType: "image/png", blobId: "b", url: "https://x.y" }), TypeError);
});
