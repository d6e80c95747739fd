/** How a client finds its server. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Contextd } from "contextd";

const target = (url: string) => new Contextd({ url }).rpc.settings.target;

test("an address is a target of gRPC", () => {
  assert.equal(target("http://127.0.0.1:7070"), "dns:///127.0.0.1:7070");
  assert.equal(target("https://contextd.example.com"), "dns:///contextd.example.com:443");
  assert.equal(target("https://dns:///contextd:7070"), "dns:///contextd:7070");
  assert.equal(target("http://10.0.0.1:7070,localhost:7071"), "ipv4:10.0.0.1:7070,127.0.0.1:7071");
});

test("what is no address is refused", () => {
  assert.throws(() => target("localhost:7070"), /does not begin with http/);
  assert.throws(() => target("http://a:1,b:2"), /have to be IPv4 or IPv6/);
});

test("options come from the environment", () => {
  process.env.CONTEXTD_URL = "http://127.0.0.1:1";
  process.env.CONTEXTD_API_KEY = "key";
  const { settings } = new Contextd().rpc;
  assert.deepEqual([settings.target, settings.apiKey], ["dns:///127.0.0.1:1", "key"]);
});
