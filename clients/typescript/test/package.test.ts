/** The package as users get it: packed, installed into a fresh folder, with README's quick start and the examples. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Server } from "./server.js";

const execute = promisify(execFile);
const place = mkdtempSync(join(tmpdir(), "contextd-package-"));
let server: Server;

async function run(file: string, ...args: string[]): Promise<string> {
  const env = { ...process.env, CONTEXTD_URL: server.url };
  const { stdout } = await execute(file, args, { cwd: place, env, timeout: 90_000 }).catch((error) => {
    throw new Error(`${error.message}\n${error.stdout}\n${error.stderr}`);
  });
  return stdout;
}

/** What README's blocks need beside the package. */
const READMES = ["@modelcontextprotocol/sdk", "openai"];
const GIVEN = `import type { Session, Tool } from "contextd";
import type OpenAI from "openai";
declare const session: Session;
declare const weather: Tool;
declare const openai: OpenAI;
`;
const [quickStart = "", ...others] = [...readFileSync("README.md", "utf8").matchAll(/^```js\n([\s\S]*?)^```/gm)].map(
  (block) => block[1] ?? "",
);
const blocks = others.map((block) => GIVEN + block);

before(async () => {
  server = await Server.start({ model: "scripted/demo" });
  const packed = await execute("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", place]);
  const tarball = packed.stdout.trim().split("\n").at(-1) ?? "";
  writeFileSync(join(place, "package.json"), '{ "type": "module", "private": true }');
  await run("npm", "install", "--silent", "--no-audit", "--no-fund", `./${tarball}`, "zod", "ai@7", ...READMES);
  const examples = ["agent.ts", "coding-agent.ts", "ai-sdk.ts", "contacts.ts"];
  for (const name of examples) cpSync(`../../examples/typescript/${name}`, join(place, name));
  const types = ["--typeRoots", resolve("node_modules/@types"), "--types", "node"];
  const strict = [
    "--strict",
    "--skipLibCheck",
    "--module",
    "nodenext",
    "--target",
    "es2022",
    "--lib",
    "es2023,esnext.disposable",
  ];
  blocks.forEach((block, at) => {
    writeFileSync(join(place, `readme${at}.ts`), block);
  });
  const readme = blocks.map((_, at) => `readme${at}.ts`);
  await run(resolve("node_modules/.bin/tsc"), ...strict, ...types, ...examples, ...readme);
});
after(async () => {
  await server.close();
  rmSync(place, { recursive: true, force: true });
});

test("README's quick start runs as it stands", async () => {
  writeFileSync(join(place, "trip.mjs"), quickStart);
  assert.match(await run("node", "trip.mjs"), /18 °C and sunny in Paris[\s\S]*\[stop\] \d+ tokens/);
});

test("README's other blocks are compiled against the package", () => {
  assert.equal(blocks.length, 2);
});

test("the package names its repository, which publishing with provenance compares", () => {
  const { repository, homepage, bugs } = JSON.parse(readFileSync("package.json", "utf8"));
  assert.equal(repository.url, "git+https://github.com/contextd/contextd.git");
  assert.equal(repository.directory, "clients/typescript");
  for (const address of [homepage, bugs]) assert.match(address, /^https:\/\/github\.com\/contextd\/contextd\//);
});

test("the package can be required", async () => {
  const code =
    'const { Contextd } = require("contextd"); const c = new Contextd(); c.session().then((s) => { console.log(typeof s.id); c.close(); });';
  writeFileSync(join(place, "required.cjs"), code);
  assert.equal(await run("node", "required.cjs"), "string\n");
});

test("the agent runs its tools and takes a message meanwhile", async () => {
  const said = await run("node", "agent.js");
  assert.match(said, /-> get_weather {"city":"Paris"}/);
  assert.match(said, /Weather: 18 °C and sunny in Paris/);
  assert.match(said, /\[your message was taken\]/);
  assert.equal(said.match(/\[stop\]/g)?.length, 2);
});

test("the coding agent fills its window and is compacted", async () => {
  mkdirSync(join(place, "folder"));
  writeFileSync(join(place, "folder", "big.txt"), "all work and no play makes a dull text\n".repeat(250));
  const said = await run("node", "coding-agent.js", "folder", "Read on.", "scripted/coder");
  assert.match(said, /\[(compacted|pruned)/);
  assert.match(said, /\[(stop|max_steps)\] \d+ of 16000 tokens/);
});

test("the coding agent shows its model what went wrong, and reads in its folder only", async () => {
  mkdirSync(join(place, "other"));
  writeFileSync(join(place, "outside.txt"), "a secret");
  const said = await run("node", "coding-agent.js", "other", "Try.", "scripted/shell");
  assert.match(said, /bash before\nwrong\n\[exit code 3\]/);
  assert.match(said, /read \.\.\/outside\.txt is not in the folder/);
  assert.match(said, /grep no match/);
  assert.ok(!said.includes("a secret"));
});

test("what is not in the mail is asked again and then left for a person", async () => {
  const said = (await run("node", "contacts.js", "scripted/mail")).split("\n");
  assert.deepEqual(said.slice(0, 3), [
    "Anna Berg: Blue kettle",
    "  not in the mail: Ole Lund",
    "Tom Hill: settings page",
  ]);
  assert.match(said[6] ?? "", /^for a person: Do you deliver/);
});

test("a conversation of the AI SDK goes in, and a UI message comes out", async () => {
  const parts = JSON.parse(await run("node", "ai-sdk.js"));
  const said = parts
    .filter((part: { type: string }) => part.type === "text")
    .map((part: { text: string }) => part.text);
  assert.match(said.at(-1), /18 °C in Paris/);
  const call = parts.find((part: { type: string }) => part.type === "dynamic-tool");
  assert.equal(call.state, "output-available");
  assert.deepEqual(call.input, { city: "Paris" });
});
