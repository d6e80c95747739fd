/** One turn for `contextd conformance`: docs/conformance.md has the protocol. */
import { setTimeout as sleep } from "node:timers/promises";
import { Contextd, type ToolContext, tool } from "@contextd/client";

const say = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`);

// biome-ignore lint/suspicious/noExplicitAny: the kit makes the arguments
type Args = any;

function make(name: string, properties: object, work: (args: Args) => unknown, needsApproval = false) {
  const execute = (args: Args, context: ToolContext) => {
    say({ tool: name, call: context.callId, args });
    return work(args);
  };
  return tool({ name, parameters: { type: "object", properties }, execute, needsApproval });
}

const integer = { type: "integer" };
const tools = [
  make("add", { a: integer, b: integer }, ({ a, b }) => String(a + b)),
  make("slow", { ms: integer }, ({ ms }) => sleep(ms, "done")),
  make("large", { chars: integer }, ({ chars }) => "x".repeat(chars)),
  make("delete", { name: { type: "string" } }, ({ name }) => `deleted ${name}`, true),
];
const approve = (call: { arguments: unknown }) => !(call.arguments as { name: string }).name.startsWith("keep");

const client = new Contextd();
try {
  const session = await client.open(process.env.CONTEXTD_CONFORMANCE_SESSION ?? "");
  const run = session.run(process.env.CONTEXTD_CONFORMANCE_INPUT ?? "", { tools, approve });
  for await (const event of run) {
    if (event.type === "text_delta") say({ text: event.text });
    if (event.type === "discarded") say({ reset: true });
  }
  const { status, reason, text, turnId } = await run.result();
  say({ end: { state: status, reason, text, turn: turnId } });
} catch (error) {
  say({ error: String(error) });
}
client.close();
