// A coding agent: it reads and runs what it wants in a folder, for longer than its window is.
import { execFile } from "node:child_process";
import { readFile, realpath } from "node:fs/promises";
import { resolve, sep } from "node:path";
import { promisify } from "node:util";
import { Contextd, tool } from "@contextd/client";
import { z } from "zod";

const [folder = ".", task = "What is in this folder?", model = ""] = process.argv.slice(2);
const cwd = await realpath(folder);
const run = promisify(execFile);

/** What a program says, and how it ended if that was not well. */
async function output(file: string, args: string[], signal: AbortSignal): Promise<{ said: string; code: number }> {
  try {
    const { stdout, stderr } = await run(file, args, { cwd, signal, maxBuffer: 2 ** 24 });
    return { said: stdout + stderr, code: 0 };
  } catch (error) {
    const { stdout = "", stderr = "", code } = error as { stdout?: string; stderr?: string; code?: unknown };
    if (typeof code !== "number") throw error; // It did not start, was stopped, or said too much.
    return { said: `${stdout}${stderr}[exit code ${code}]`, code };
  }
}

/** A file of the folder; links that leave it are refused too. */
async function inside(path: string): Promise<string> {
  const found = resolve(cwd, path);
  const real = found.startsWith(cwd + sep) ? await realpath(found) : found;
  if (!real.startsWith(cwd + sep)) throw new Error(`${path} is not in the folder`);
  return real;
}

const bash = tool({
  name: "bash",
  description: "Runs a command in the folder.",
  parameters: z.object({ command: z.string() }),
  timeout: 120_000,
  needsApproval: true,
  execute: async ({ command }, { signal }) => (await output("bash", ["-c", command], signal)).said,
});
const read = tool({
  name: "read",
  description: "Reads a file of the folder.",
  parameters: z.object({ path: z.string() }),
  execute: async ({ path }) => readFile(await inside(path), "utf8"),
});
const grep = tool({
  name: "grep",
  description: "Searches the folder for a regular expression.",
  parameters: z.object({ pattern: z.string() }),
  execute: async ({ pattern }, { signal }) => {
    const { said, code } = await output("grep", ["-rnE", "--", pattern, "."], signal);
    return code === 1 ? "no match" : said; // 1 is no match, and more is an error.
  },
});

await using client = new Contextd();
const session = await client.session({
  model,
  instructions: "You are a careful programmer. Read before you answer.",
  tools: [bash, read, grep],
});
const turn = session.run(task, {
  approve: ({ arguments: args }) => {
    console.log("\n[allowed]", JSON.stringify(args)); // Ask a person here.
    return true;
  },
});
for await (const event of turn) {
  if (event.type === "text_delta") process.stdout.write(event.text);
  if (event.type === "tool_call_requested") console.log(`\n-> ${event.call?.toolName} ${event.call?.argumentsJson}`);
  if (event.type === "context_pruned") console.log(`\n[pruned ${event.report?.tokensSaved} tokens of old results]`);
  if (event.type === "compaction_completed") {
    const { tokensBefore, tokensAfter } = event.compaction ?? {};
    console.log(`\n[compacted: ${tokensBefore?.tokens} -> ${tokensAfter?.tokens} tokens]`);
  }
}
const { reason } = await turn.result();
const stats = await session.stats();
console.log(`\n[${reason}] ${stats.used?.tokens} of ${stats.contextWindow} tokens`);
