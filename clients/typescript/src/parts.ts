/** Parts of messages. */
import type { Part } from "./gen/index.js";

/** A part that is text. */
export function textPart(text: string): Part {
  return { content: { $case: "text", value: text }, citations: [], providerMetadataJson: "", sanitized: false };
}

/** What the parts say. */
export function textOf(parts: Part[]): string {
  return parts
    .map((part) => (part.content?.$case === "text" || part.content?.$case === "refusal" ? part.content.value : ""))
    .join("");
}
