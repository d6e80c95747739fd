/** Parts of messages. */

import { Buffer } from "node:buffer";
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

/** An image, document, sound or video. One of `data`, `blobId` and `url` is set. */
export interface MediaSource {
  /** Its MIME type, e.g. `image/png`. */
  mediaType: string;
  /** Its bytes, at most 3 MiB. */
  data?: Uint8Array;
  /** The id of a stored blob. */
  blobId?: string;
  /** An address that the model service fetches. */
  url?: string;
  /** Name of the file. */
  filename?: string;
}

/** A part that is an image, document, sound or video. A tool returns it alone, or in a list with texts and parts. */
export function mediaPart({ mediaType, data, blobId, url, filename = "" }: MediaSource): Part {
  const sources = [
    data && { $case: "data" as const, value: Buffer.from(data) },
    blobId && { $case: "blobId" as const, value: blobId },
    url && { $case: "url" as const, value: url },
  ].filter((it) => typeof it === "object");
  const [source] = sources;
  if (!source || sources.length > 1) throw new TypeError("media takes one of data, blobId and url");
  const media = { mediaType, source, filename, sizeBytes: 0, width: 0, height: 0 };
  return { ...textPart(""), content: { $case: "media", value: media } };
}

/** Whether a value is a part of a message. */
export function isPart(value: unknown): value is Part {
  if (typeof value !== "object" || value === null || !("content" in value)) return false;
  const { content } = value as { content: unknown };
  return typeof content === "object" && content !== null && "$case" in content;
}
