// A travel guide with two tools. Stop it in mid sentence and start it again: it takes the turn up.
import { Contextd, type Run, tool } from "@contextd/client";
import { z } from "zod";

const parameters = z.object({ city: z.string() });
const weather = tool({
  name: "get_weather",
  description: "Current weather of a city.",
  parameters,
  execute: ({ city }) => `18 °C and sunny in ${city} (made-up demo data)`,
});
const time = tool({
  name: "get_time",
  description: "Local time of a city.",
  parameters,
  execute: ({ city }) => `14:05 in ${city} (made-up demo data)`,
});

async function show(run: Run): Promise<void> {
  for await (const event of run) {
    if (event.type === "text_delta") process.stdout.write(event.text);
    if (event.type === "tool_call_requested") console.log(`\n-> ${event.call?.toolName} ${event.call?.argumentsJson}`);
    if (event.type === "messages_applied") console.log("\n[your message was taken]");
  }
  const { reason, usage } = await run.result();
  console.log(`\n[${reason}] ${usage?.totalTokens} tokens`);
}

await using client = new Contextd();
const id = process.argv[2] ?? "trip";
const session = await client.session({ id, instructions: "You are a travel guide.", tools: [weather, time] });
const left = await session.resume(); // A turn that an earlier process left.
if (left) await show(left);
await show(session.run("What is the weather and time in Paris?"));
const story = session.run("Tell me slowly about Paris");
setTimeout(() => session.send("Keep it short, please."), 500);
await show(story);
