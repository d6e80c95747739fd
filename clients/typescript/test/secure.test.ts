/** TLS and API keys. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Contextd, ContextdError } from "@contextd/client";
import { BIN, Server } from "./server.js";

const place = mkdtempSync(join(tmpdir(), "contextd-tls-"));
const caFile = join(place, "cert.pem");
let server: Server;
let apiKey: string;

before(async () => {
  chmodSync(place, 0o755);
  const keyFile = join(place, "key.pem");
  const names = [
    "-addext",
    "subjectAltName=DNS:localhost,IP:127.0.0.1",
    "-addext",
    "basicConstraints=critical,CA:FALSE",
  ];
  const kind = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost".split(" ");
  execFileSync("openssl", ["req", ...kind, ...names, "-keyout", keyFile, "-out", caFile], { stdio: "ignore" });
  const made = spawnSync(BIN, ["admin", "key", "generate", "--tenant", "acme"], { encoding: "utf8" });
  const lines = `${made.stdout}\n${made.stderr}`.split("\n");
  apiKey = lines.find((line) => line.startsWith("ctxd_")) ?? "";
  writeFileSync(join(place, "keys.toml"), lines.filter((line) => line !== apiKey).join("\n"));
  server = await Server.start({
    variables: {
      CONTEXTD_TLS_CERT: caFile,
      CONTEXTD_TLS_KEY: keyFile,
      CONTEXTD_KEYS_FILE: join(place, "keys.toml"),
      CONTEXTD_AUTH_REQUIRED: "true",
    },
  });
});
after(async () => {
  await server?.close();
  rmSync(place, { recursive: true, force: true });
});

const https = (host: string) => `https://${host}:${server.port}`;

test("a key and the authority let one in", async () => {
  for (const host of ["localhost", "127.0.0.1"]) {
    await using client = new Contextd({ url: https(host), apiKey, caFile });
    assert.match((await (await client.session()).run("Hello").result()).text, /Hello/);
  }
});

test("several hosts share them", async () => {
  await using client = new Contextd({ url: `${https("localhost")},${https("127.0.0.1")}`, apiKey, caFile });
  for (let at = 0; at < 3; at++) assert.ok((await client.session()).id);
});

test("without the key one is refused at once, and the message does not repeat a key", async () => {
  for (const wrong of [undefined, `${apiKey}x`]) {
    await using client = new Contextd({ url: https("localhost"), apiKey: wrong, caFile });
    const error = await client.session().catch((it) => it);
    assert.ok(error instanceof ContextdError);
    assert.equal(error.reason, "UNAUTHENTICATED");
    assert.ok(!error.message.includes(apiKey));
  }
});

test("without the authority the server is not trusted", async () => {
  await using client = new Contextd({ url: https("localhost"), apiKey, patience: 500 });
  await assert.rejects(client.session(), { name: "ServerUnreachableError", message: /unknown authority/ });
});
