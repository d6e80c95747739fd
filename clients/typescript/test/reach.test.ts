/** A server that is not there: within 5 s, with the URL, the cause and the next step. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type Server as PlainServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createServer as createTlsServer } from "node:tls";
import { Contextd, ServerUnreachableError } from "@contextd/client";
import { Server } from "./server.js";

const place = mkdtempSync(join(tmpdir(), "contextd-reach-"));
const SETTINGS = Buffer.from("\0\0\0\x04\0\0\0\0\0", "latin1");
const servers: PlainServer[] = [];

before(() => {
  for (const name of ["localhost", "other.example"]) {
    const kind = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test".split(" ");
    const files = ["-keyout", join(place, `${name}.key`), "-out", join(place, `${name}.pem`)];
    execFileSync("openssl", ["req", ...kind, "-addext", `subjectAltName=DNS:${name}`, ...files], { stdio: "ignore" });
  }
});
after(() => {
  for (const each of servers) each.close();
  rmSync(place, { recursive: true, force: true });
});

/** A server that does not speak gRPC, on a free port. */
async function listening(server: PlainServer): Promise<number> {
  servers.push(server);
  server.unref();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as { port: number }).port;
}

const http2 = () => createServer((socket) => quiet(socket).write(SETTINGS));
const http1 = () => createServer((socket) => quiet(socket).once("data", () => socket.end("HTTP/1.1 400 Bad\r\n\r\n")));
const silent = () => createServer(quiet);
const tls = (name: string) =>
  createTlsServer(
    {
      cert: readFileSync(join(place, `${name}.pem`)),
      key: readFileSync(join(place, `${name}.key`)),
      ALPNProtocols: ["h2"],
    },
    (socket) => quiet(socket).write(SETTINGS),
  ).on("tlsClientError", () => {});

function quiet(socket: Socket): Socket {
  socket.unref();
  return socket.on("error", () => {});
}

async function refused(): Promise<number> {
  const server = createServer();
  const port = await listening(server);
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const CASES: [name: string, port: () => Promise<number>, scheme: string, words: string[], ca?: string][] = [
  ["nothing listens", refused, "http", ["connection refused", "contextd serve"]],
  ["https to a plain server", () => listening(http2()), "https", ["does not speak TLS", "Use http://"]],
  ["http to a server with TLS", () => listening(tls("localhost")), "http", ["expects TLS", "Use https://"]],
  ["an unknown authority", () => listening(tls("localhost")), "https", ["unknown authority", "CONTEXTD_CA_FILE"]],
  [
    "another host's certificate",
    () => listening(tls("other.example")),
    "https",
    ["another host", "host name of the certificate"],
    "other.example.pem",
  ],
  ["a server of HTTP/1", () => listening(http1()), "http", ["is not a gRPC server", "7070"]],
  ["a server that says nothing", () => listening(silent()), "http", ["does not answer", "network policies"]],
];

for (const [name, port, scheme, words, ca] of CASES) {
  test(`${name}: the first contact fails within 5 s and says why`, async () => {
    const url = `${scheme}://localhost:${await port()}`;
    const caFile = ca && join(place, ca);
    await using client = new Contextd({ url, apiKey: "the-key", ...(caFile && { caFile }) });
    const began = Date.now();
    const error = await client.session().catch((it) => it);
    assert.ok(Date.now() - began < 5_500);
    assert.ok(error instanceof ServerUnreachableError, `${error}`);
    for (const word of [url, ...words]) assert.ok(error.message.includes(word), error.message);
    assert.ok(!error.message.includes("the-key"));
  });
}

test("an unknown name: the first contact fails within 5 s and says why", async () => {
  await using client = new Contextd({ url: "http://no-such-host.invalid:7070" });
  await assert.rejects(client.session(), /no-such-host.invalid cannot be resolved.*Check the host name/);
});

test("a server that was reached is waited for, with a line in the log", async () => {
  const server = await Server.start();
  const lines: string[] = [];
  const log = {
    info: (line: string) => lines.push(line),
    warn: (line: string) => lines.push(line),
    error: (line: string) => lines.push(line),
  };
  try {
    await using client = new Contextd({ url: server.url, log });
    await client.session({ id: "known" });
    await server.down("SIGKILL");
    const back = sleep(6_000).then(() => server.up());
    await client.session({ id: "known" });
    await back;
    assert.equal(lines.length, 2);
    assert.ok(lines[0]?.startsWith(`contextd at ${server.url} does not answer`));
    assert.equal(lines[1], `contextd at ${server.url} answers again`);
  } finally {
    await server.close();
  }
});
