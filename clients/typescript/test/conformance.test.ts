/** The client under `contextd conformance`. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

test("the client passes the conformance kit", async () => {
  const driver = fileURLToPath(new URL("driver.js", import.meta.url));
  const bin = process.env.CONTEXTD_BIN ?? "contextd";
  const kit = spawn(bin, ["conformance", "--timeout", "1m", "--", process.execPath, driver]);
  let report = "";
  for (const output of [kit.stdout, kit.stderr]) output.on("data", (data) => (report += data));
  const [code] = await once(kit, "close");
  assert.equal(code, 0, report);
});
