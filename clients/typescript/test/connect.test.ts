/** How a client finds its server. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { Contextd, type ContextdOptions } from "@contextd/client";

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

test("white space around a key is left out", () => {
  for (const key of ["secret-key\n", "secret-key\r\n", " secret-key ", "\tsecret-key"]) {
    assert.equal(settled({ apiKey: key }).apiKey, "secret-key");
    withVariables({ CONTEXTD_API_KEY: key }, () => assert.equal(settled({}).apiKey, "secret-key"));
  }
});

test("a key that cannot be sent is refused, and the message does not show it", () => {
  for (const key of ["secret\nkey", "secret key", "sécret-key", "secret\0key"]) {
    const error = attempt(() => settled({ apiKey: key }));
    assert.ok(error instanceof TypeError);
    assert.match(error.message, /position/);
    assert.ok(!error.message.includes("ecret"));
  }
});

test("a client that is printed shows no key", () => {
  const client = new Contextd({ apiKey: "secret-key" });
  client.close();
  assert.equal(client.rpc.settings.apiKey, "secret-key");
  for (const text of [inspect(client, { depth: 9 }), JSON.stringify(client.rpc.settings)]) {
    assert.ok(!text.includes("secret-key"));
  }
});

test("the address of the command line is read where no URL is given", () => {
  const targets = (variables: Record<string, string>) => withVariables(variables, () => settled({}).targets);
  assert.deepEqual(targets({ CONTEXTD_ADDRESS: "10.0.0.1:7070" }), ["dns:///10.0.0.1:7070"]);
  assert.deepEqual(targets({ CONTEXTD_ADDRESS: "https://a" }), ["dns:///a:443"]);
  assert.deepEqual(targets({ CONTEXTD_URL: "http://b", CONTEXTD_ADDRESS: "c:1" }), ["dns:///b:7070"]);
});

function attempt(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    return error;
  }
}
