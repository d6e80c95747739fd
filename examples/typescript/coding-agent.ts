// A coding agent: it reads and runs what it wants in a folder, for longer than its window is.
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { Contextd, tool } from "contextd";
import { z } from "zod";

const [folder = ".", task = "What is in this folder?", model = ""] = process.argv.slice(2);
const cwd = resolve(folder);
const run = promisify(execFile);

async function output(file: string, args: string[], signal: AbortSignal): Promise<string> {
  const { stdout, stderr } = await run(file, args, { cwd, signal, maxBuffer: 2 ** 24 });
  return stdout + stderr;
}

const bash = tool({
  name: "bash",
  description: "Runs a command in the folder.",
  parameters: z.object({ command: z.string() }),
  timeout: 120_000,
  needsApproval: true,
  execute: ({ command }, { signal }) => output("bash", ["-c", command], signal),
});
const read = tool({
  name: "read",
  description: "Reads a file of the folder.",
  parameters: z.object({ path: z.string() }),
  execute: ({ path }) => readFile(resolve(cwd, path), "utf8"),
});
const grep = tool({
  name: "grep",
  description: "Searches the folder for a regular expression.",
  parameters: z.object({ pattern: z.string() }),
  execute: ({ pattern }, { signal }) => output("grep", ["-rnE", "--", pattern, "."], signal).catch(() => "no match"),
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
