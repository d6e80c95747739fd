// The AI SDK at both ends: its messages go into a session, and a turn comes out as its UI message stream.
import { convertToModelMessages, readUIMessageStream, type UIMessage, type UIMessageChunk } from "ai";
import { Contextd, type Message, type Run, tool } from "@contextd/client";
import { z } from "zod";

/** Give it to `createUIMessageStreamResponse({ stream })`. */
export function uiMessageStream(run: Run): ReadableStream<UIMessageChunk> {
  return ReadableStream.from(chunks(run));
}

async function* chunks(run: Run): AsyncGenerator<UIMessageChunk> {
  yield { type: "start" };
  let open: { kind: "text" | "reasoning"; id: string } | undefined;
  for await (const event of run) {
    const piece = event.type === "text_delta" || event.type === "reasoning_delta";
    const kind = event.type === "text_delta" ? "text" : "reasoning";
    const id = piece ? `${event.messageId}-${event.partIndex}` : "";
    if (open && (piece ? open.id !== id : event.type === "message_committed" || event.type === "discarded")) {
      yield { type: `${open.kind}-end`, id: open.id };
      open = undefined;
    }
    if (piece && !open) {
      open = { kind, id };
      yield { type: `${kind}-start`, id };
    }
    if (piece) yield { type: `${kind}-delta`, id, delta: event.text };
    else if (event.type === "step_started") yield { type: "start-step" };
    else if (event.type === "message_committed") yield* calls(event.message);
    else if (event.type === "tool_call_completed") yield* outcome(event.result);
    else if (event.type === "turn_failed") yield { type: "error", errorText: event.failure?.message ?? "" };
    else if (event.type === "turn_cancelled") yield { type: "abort" };
  }
  yield { type: "finish" };
}

function* calls(message: Message | undefined): Generator<UIMessageChunk> {
  if (message?.role !== "assistant") return;
  for (const { content } of message.parts) {
    if (content?.$case !== "toolCall") continue;
    const { callId: toolCallId, toolName, argumentsJson } = content.value;
    yield { type: "tool-input-available", toolCallId, toolName, input: JSON.parse(argumentsJson), dynamic: true };
  }
  yield { type: "finish-step" };
}

type Result = NonNullable<Extract<Message["parts"][number]["content"], { $case: "toolResult" }>>["value"];

function* outcome(result: Result | undefined): Generator<UIMessageChunk> {
  if (!result) return;
  const output = result.parts.map(({ content }) => (content?.$case === "text" ? content.value : "")).join("");
  const toolCallId = result.callId;
  if (result.outcome === "success") yield { type: "tool-output-available", toolCallId, output, dynamic: true };
  else yield { type: "tool-output-error", toolCallId, errorText: output, dynamic: true };
}

// A conversation that a chat of the AI SDK kept goes on in contextd.
const kept: UIMessage[] = [
  { id: "1", role: "user", parts: [{ type: "text", text: "Hello" }] },
  { id: "2", role: "assistant", parts: [{ type: "text", text: "Hello! Where shall we go?" }] },
];
const parameters = z.object({ city: z.string() });
const weather = tool({ name: "get_weather", parameters, execute: ({ city }) => `18 °C in ${city}` });
await using client = new Contextd();
const session = await client.session({ tools: [weather] });
await session.record(await convertToModelMessages(kept), { format: "ai_sdk" });
const stream = uiMessageStream(session.run("What is the weather in Paris?"));
let last: UIMessage | undefined;
for await (const message of readUIMessageStream({ stream })) last = message;
console.log(JSON.stringify(last?.parts, null, 1));
