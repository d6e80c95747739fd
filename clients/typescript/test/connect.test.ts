/** How a client finds its server. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Contextd, type ContextdOptions } from "contextd";

const settled = (options: ContextdOptions) => {
  const client = new Contextd(options);
  client.close();
  return client.rpc.settings;
};

function withVariables<T>(variables: Record<string, string>, work: () => T): T {
  const before = { ...process.env };
  for (const name of Object.keys(process.env)) if (/^CONTEXTD_(?!BIN)/.test(name)) delete process.env[name];
  Object.assign(process.env, variables);
  try {
    return work();
  } finally {
    process.env = before;
  }
}

const URLS: [url: string, targets: string[], tls: boolean][] = [
  ["http://localhost", ["dns:///localhost:7070"], false],
  ["http://localhost:1234/", ["dns:///localhost:1234"], false],
  ["https://contextd.example.com", ["dns:///contextd.example.com:443"], true],
  ["http://a:1,b:2", ["dns:///a:1", "dns:///b:2"], false],
  ["https://a,https://b:8443", ["dns:///a:443", "dns:///b:8443"], true],
  ["http://[::1]:7070", ["dns:///[::1]:7070"], false],
  ["http://[::1]", ["dns:///[::1]:7070"], false],
  ["dns:///contextd:7070", ["dns:///contextd:7070"], false],
  ["http+dns:///contextd", ["dns:///contextd:7070"], false],
  ["https+dns:///contextd:7070", ["dns:///contextd:7070"], true],
];

for (const [url, targets, tls] of URLS) {
  test(`${url} is ${targets.join(" and ")}`, () => {
    const settings = settled({ url });
    assert.deepEqual([settings.targets, settings.tls !== undefined], [targets, tls]);
  });
}

for (const url of [
  "localhost:7070",
  "grpc://a",
  "http://",
  "http://a:port",
  "http://a:70000",
  "http://a/path",
  "http://u@a",
  "http://a?b",
  "http://a,",
  "http://::1",
  "dns:///",
]) {
  test(`${url} is refused`, () => assert.throws(() => settled({ url }), { name: "TypeError" }));
}

test("options win over variables, and empty variables count as unset", () => {
  withVariables({ CONTEXTD_URL: "http://env:1", CONTEXTD_API_KEY: "env-key", CONTEXTD_CA_FILE: "" }, () => {
    assert.deepEqual([settled({}).targets, settled({}).apiKey], [["dns:///env:1"], "env-key"]);
    const found = settled({ url: "http://arg:2", apiKey: "arg-key" });
    assert.deepEqual([found.targets, found.apiKey], [["dns:///arg:2"], "arg-key"]);
  });
  withVariables({ CONTEXTD_URL: "", CONTEXTD_API_KEY: "" }, () => {
    assert.deepEqual([settled({}).targets, settled({}).apiKey], [["dns:///127.0.0.1:7070"], undefined]);
  });
});

test("a certificate takes a key and an https URL", () => {
  withVariables({}, () => {
    assert.throws(() => settled({ url: "https://a", certFile: "c.pem" }), /keyFile/);
    assert.throws(() => settled({ url: "http://a", caFile: "ca.pem" }), /https/);
  });
});
