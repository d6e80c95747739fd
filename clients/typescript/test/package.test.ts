/** The package as users get it: packed, installed into a fresh folder, with README's quick start and the examples. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Server } from "./server.js";

const execute = promisify(execFile);
const place = mkdtempSync(join(tmpdir(), "contextd-package-"));
let server: Server;
let tarball: string;

async function run(file: string, ...args: string[]): Promise<string> {
  const env = { ...process.env, CONTEXTD_URL: server.url };
  const { stdout } = await execute(file, args, { cwd: place, env, timeout: 90_000 }).catch((error) => {
    throw new Error(`${error.message}\n${error.stdout}\n${error.stderr}`);
  });
  return stdout;
}

/** What the blocks of the pages need beside the package, and what they name and do not declare. */
const PACKAGES = ["@modelcontextprotocol/sdk", "openai", "ai@7"];
const GIVEN: Record<string, string> = {
  "README.md": `import type { Session, Tool } from "@contextd/client";
import type OpenAI from "openai";
declare const session: Session;
declare const weather: Tool;
declare const openai: OpenAI;
`,
  "../../docs/migrating/ai-sdk.md": `import * as ai from "ai";
import type { Contextd, Session, Tool } from "@contextd/client";
import { uiMessageStream } from "./ai-sdk.js";
const { convertToModelMessages, createUIMessageStreamResponse, stepCountIs, streamText } = ai;
declare const client: Contextd;
declare const session: Session;
declare const weather: Tool & ai.Tool;
declare const openai: (model: string) => ai.LanguageModel;
declare const kept: ai.UIMessage[];
declare const chatId: string, text: string;
`,
  "../../docs/import.md": `import { jsonSchema, type LanguageModel, streamText } from "ai";
import type { Prompt } from "@contextd/client/proto";
declare const prompt: Prompt;
declare const model: LanguageModel;
`,
};

/** The blocks of a page, but those that are a file of the examples to the letter. */
function blocksOf(page: string): string[] {
  const found = readFileSync(page, "utf8").matchAll(/^(<!-- check: is .*\n)?```(?:js|ts)\n([\s\S]*?)^```/gm);
  return [...found].filter(([, is]) => !is).map(([, , text = ""]) => text);
}

const docs = readdirSync("../../docs", { recursive: true, encoding: "utf8" })
  .filter((page) => page.endsWith(".md"))
  .map((page) => `../../docs/${page}`);
const quickStart = blocksOf("README.md")[0] ?? "";
/** As modules by their names. A block that imports nothing has a scope of its own, so that it may declare what others are given. */
const blocks = ["README.md", ...docs].flatMap((page) =>
  blocksOf(page)
    .filter((block) => block !== quickStart)
    .map((block, at): [string, string] => [
      `${basename(page, ".md")}-block${at}.ts`,
      `${GIVEN[page] ?? ""}${/^import /m.test(block) ? block : `{\n${block}}`}\nexport {};\n`,
    ]),
);

before(async () => {
  server = await Server.start({ model: "scripted/demo" });
  const packed = await execute("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", place]);
  tarball = packed.stdout.trim().split("\n").at(-1) ?? "";
  writeFileSync(join(place, "package.json"), '{ "type": "module", "private": true }');
  await run("npm", "install", "--silent", "--no-audit", "--no-fund", `./${tarball}`, "zod", ...PACKAGES);
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
  for (const [name, block] of blocks) writeFileSync(join(place, name), block);
  const pages = blocks.map(([name]) => name);
  await run(resolve("node_modules/.bin/tsc"), ...strict, ...types, ...examples, ...pages);
});
after(async () => {
  await server.close();
  rmSync(place, { recursive: true, force: true });
});

test("README's quick start runs as it stands", async () => {
  writeFileSync(join(place, "trip.mjs"), quickStart);
  assert.match(await run("node", "trip.mjs"), /18 °C and sunny in Paris[\s\S]*\[stop\] \d+ tokens/);
});

test("the blocks of README and of the documentation are compiled against the package", () => {
  assert.ok(blocks.length >= 6);
});

test("the package names its repository, which publishing with provenance compares", () => {
  const { repository, homepage, bugs } = JSON.parse(readFileSync("package.json", "utf8"));
  assert.equal(repository.url, "git+https://github.com/contextd/contextd.git");
  assert.equal(repository.directory, "clients/typescript");
  for (const address of [homepage, bugs]) assert.match(address, /^https:\/\/github\.com\/contextd\/contextd\//);
});

test("the examples are modules, and install the file that npm pack makes", () => {
  const { version } = JSON.parse(readFileSync("package.json", "utf8"));
  const examples = JSON.parse(readFileSync("../../examples/typescript/package.json", "utf8"));
  assert.equal(examples.type, "module"); // tsx refuses `await` at the top of anything else
  const file = `contextd-client-${version}.tgz`;
  assert.equal(examples.dependencies["@contextd/client"], `file:../../clients/typescript/${file}`);
});

test("the commands of the examples' README do what it says", async () => {
  const [examples, client] = ["examples", "clients"].map((folder) => join(place, "copy", folder, "typescript"));
  cpSync("../../examples/typescript", String(examples), { recursive: true });
  cpSync(join(place, tarball), join(String(client), tarball));
  const page = readFileSync("../../examples/typescript/README.md", "utf8");
  const [, block = ""] = /```sh\n([\s\S]*?)```/.exec(page) ?? [];
  // The first two make the package, which is there.
  const [build = "", pack = "", install = "", agent = "", coding = ""] = block.split("\n");
  assert.match(build, /run build$/);
  assert.match(pack, /^npm pack /);
  const env = { ...process.env, CONTEXTD_URL: server.url };
  const shell = async (command: string): Promise<string> => {
    const { stdout } = await execute("sh", ["-c", command], { cwd: String(examples), env, timeout: 180_000 });
    return stdout;
  };
  await shell(install);
  assert.match(await shell(agent), /Weather: 18 °C and sunny in Paris/);
  const scripted = coding.replace("openai/gpt-5-mini", "scripted/shell");
  assert.match(await shell(scripted), /bash before\nwrong\n\[exit code 3\]/);
});

test("the package can be required", async () => {
  const code =
    'const { Contextd } = require("@contextd/client"); const c = new Contextd(); c.session().then((s) => { console.log(typeof s.id); c.close(); });';
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
