/** Requests that are sent again after an answer was lost. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Contextd } from "@contextd/client";
import { type CancelTurnRequest, SessionServiceDefinition, TurnServiceDefinition } from "@contextd/client/proto";
import { status } from "@grpc/grpc-js";
import { fake } from "./fake.js";

test("a cancel whose answer was lost is repeated under its id, so that it does not cancel the next turn", async () => {
  const seen: CancelTurnRequest[] = [];
  const server = await fake(
    [SessionServiceDefinition, SessionServiceDefinition.methods.getSession, (_, reply) => reply(null, {})],
    [
      TurnServiceDefinition,
      TurnServiceDefinition.methods.cancelTurn,
      (request, reply) => {
        seen.push(request);
        // A status without a reason is that of a connection that broke.
        if (seen.length === 1) reply({ code: status.INTERNAL, details: "RST_STREAM" });
        else reply(null, {});
      },
    ],
  );
  await using client = new Contextd({ url: server.url });
  const session = await client.open("s");
  await session.cancel({ turnId: "t" });
  server.close();
  assert.equal(seen.length, 2);
  assert.ok(seen[0]?.requestId);
  assert.equal(seen[0].requestId, seen[1]?.requestId);
  assert.equal(seen[0].turnId, "t");
});
