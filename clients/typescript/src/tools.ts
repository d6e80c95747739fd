/** Tools that run in this process. */

import { Buffer } from "node:buffer";
import type { Part, Tool as ProtoTool, ToolOutputLimits } from "./gen/index.js";
import { isPart, textPart } from "./parts.js";

/** A schema of zod or of any library with Standard Schema. */
export interface StandardSchema<Output = unknown> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => unknown;
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
  };
}

/** A JSON Schema of an object. */
export type JsonSchema = { readonly [key: string]: unknown };

type OutputOf<S> = S extends StandardSchema
  ? NonNullable<S["~standard"]["types"]>["output"]
  : // biome-ignore lint/suspicious/noExplicitAny: a plain JSON Schema says nothing to the compiler
    any;

/** What a tool learns of its call. */
export interface ToolContext {
  callId: string;
  toolName: string;
  sessionId: string;
  turnId: string;
  /** Aborted when the result is not wanted any more: time is up, or the turn ended. */
  signal: AbortSignal;
}

/** What `tool` takes. */
export interface ToolDefinition<S> {
  /** 1 to 64 characters of [A-Za-z0-9_-]. */
  name: string;
  /** What it does and when to use it, for the model. */
  description?: string;
  /** A zod schema (4.1 or later), another library's with Standard JSON Schema, or a JSON Schema. Absent: no arguments. */
  parameters?: S;
  /** Its result: a string, `mediaPart(...)` or another part, a list of strings and parts, or anything that becomes JSON. What it throws, the model reads as an error. */
  execute: (args: OutputOf<S>, context: ToolContext) => unknown;
  /** Milliseconds after which the model reads that it took too long. Default: TurnLimits.tool_timeout, 10 minutes. */
  timeout?: number;
  /** Ask a person first: `approve` of the run decides, or `run.approve` and `run.deny`. */
  needsApproval?: boolean;
  /** How much of its output the model sees. */
  outputLimits?: Partial<ToolOutputLimits>;
  /** Where statistics count it. */
  category?: ProtoTool["category"];
}

/** A tool that is ready to be offered. */
export interface Tool {
  readonly name: string;
  readonly timeout: number | undefined;
  /** As the server is told. */
  readonly definition: Partial<ProtoTool>;
  /** Checks the arguments and runs it; rejects with what the model is to read. */
  run(argumentsJson: string, context: ToolContext): Promise<Part[]>;
}

/** What the model reads of a call that failed without an exception of the tool's code: it is not logged. */
export class ToolFailure extends TypeError {}

/** A tool, or something that brings several, such as an MCP server. */
export type ToolLike = Tool | { readonly tools: readonly Tool[] };

/** More than the tool's own timeout, so that the result which says so arrives. */
const MARGIN = 10_000;

/** Defines a tool. */
export function tool<S extends StandardSchema | JsonSchema = JsonSchema>(definition: ToolDefinition<S>): Tool {
  const { name, description = "", parameters, timeout, needsApproval = false, execute } = definition;
  const allowed = timeout === undefined ? undefined : Math.min(timeout + MARGIN, 24 * 3_600_000);
  return {
    name,
    timeout,
    definition: {
      name,
      description,
      inputSchema: parameters && { schema: { $case: "json", value: JSON.stringify(jsonSchema(parameters)) } },
      requiresApproval: needsApproval,
      timeout: allowed === undefined ? undefined : duration(allowed),
      outputLimits: definition.outputLimits as ToolOutputLimits | undefined,
      ...(definition.category && { category: definition.category }),
    },
    async run(argumentsJson, context) {
      const args = await validated(parameters, JSON.parse(argumentsJson || "{}"));
      return parts(await execute(args as OutputOf<S>, context));
    },
  };
}

/** All tools by name; throws when two have the same. */
export function byName(tools: readonly ToolLike[]): Map<string, Tool> {
  const found = new Map<string, Tool>();
  for (const it of tools.flatMap((like) => ("tools" in like ? like.tools : [like]))) {
    if (found.has(it.name)) throw new TypeError(`two tools have the name ${it.name}`);
    found.set(it.name, it);
  }
  return found;
}

/** Milliseconds as a duration of the protos. */
export function duration(ms: number): { seconds: number; nanos: number } {
  const seconds = Math.trunc(ms / 1000);
  return { seconds, nanos: Math.round((ms - seconds * 1000) * 1e6) };
}

function isStandard(schema: StandardSchema | JsonSchema): schema is StandardSchema {
  return "~standard" in schema;
}

function jsonSchema(schema: StandardSchema | JsonSchema): unknown {
  if (!isStandard(schema)) return schema;
  const own = schema as {
    toJSONSchema?: (options: object) => Record<string, unknown>;
    "~standard": { jsonSchema?: { input(options: object): unknown } };
  };
  if (own["~standard"].jsonSchema) return own["~standard"].jsonSchema.input({ target: "draft-2020-12" });
  if (own.toJSONSchema) return own.toJSONSchema({ io: "input" });
  throw new TypeError("this schema cannot be made a JSON Schema; use zod 4.1 or later, or give a JSON Schema");
}

async function validated(schema: StandardSchema | JsonSchema | undefined, value: unknown): Promise<unknown> {
  if (!schema || !isStandard(schema)) return value;
  const outcome = (await schema["~standard"].validate(value)) as {
    value?: unknown;
    issues?: readonly { message: string; path?: readonly (PropertyKey | { key: PropertyKey })[] }[];
  };
  if (!outcome.issues) return outcome.value;
  const lines = outcome.issues.map(({ message, path }) => {
    const where = (path ?? []).map((it) => String(typeof it === "object" ? it.key : it)).join(".");
    return where ? `${where}: ${message}` : message;
  });
  throw new ToolFailure(`the arguments are not valid: ${lines.join("; ")}`);
}

/** Most bytes of one text: the server takes 3 MiB of texts in a result. */
const MOST = 3 * 1024 * 1024 - 1024;

function parts(value: unknown): Part[] {
  if (value === undefined || value === null) return [];
  if (isPart(value)) return [value];
  if (Array.isArray(value) && value.some(isPart) && value.every((it) => typeof it === "string" || isPart(it))) {
    return value.map((it) => (typeof it === "string" ? textPart(it) : it));
  }
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (Buffer.byteLength(text) <= MOST) return [textPart(text)];
  return [textPart(`${Buffer.from(text).subarray(0, MOST).toString()}\n[cut: the output was longer]`)];
}
