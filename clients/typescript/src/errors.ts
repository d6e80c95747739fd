/** What the server refused, or what kept a call from reaching it. */

import { BinaryReader } from "@bufbuild/protobuf/wire";
import { type Metadata, type ServiceError, status } from "@grpc/grpc-js";
import type { Failure } from "./gen/index.js";

/** One field that is wrong, as google.rpc.BadRequest names it. */
export interface FieldViolation {
  /** Path as in the proto, e.g. `input.parts[2].media.media_type`. */
  field: string;
  /** What is wrong, for people. */
  description: string;
  /** `REQUIRED`, `TOO_LARGE` and so on (FieldReason). */
  reason: string;
}

/** A limit that was reached, as google.rpc.QuotaFailure names it. */
export interface QuotaViolation {
  subject: string;
  description: string;
}

/** What a ContextdError is made of. */
export interface ErrorDetails {
  code: number;
  reason: string;
  message: string;
  metadata?: Record<string, string>;
  fields?: FieldViolation[];
  quota?: QuotaViolation[];
  retryAfter?: number;
  fromServer?: boolean;
  cause?: unknown;
}

/** An error of a call. Switch on `reason`; fall back on `code` for a reason that you do not know. */
export class ContextdError extends Error {
  /** The gRPC status code. */
  readonly code: number;
  /** Stable and machine-readable, e.g. `SESSION_NOT_FOUND`; the name of the gRPC code if the server gave none. */
  readonly reason: string;
  /** What the reason comes with, e.g. `turn_id`. */
  readonly metadata: Record<string, string>;
  /** Fields that are wrong (INVALID_REQUEST). */
  readonly fields: FieldViolation[];
  /** Limits that were reached. */
  readonly quota: QuotaViolation[];
  /** Milliseconds after which a repetition is worth it. */
  readonly retryAfter: number | undefined;
  /** contextd itself gave this status; else the transport did. */
  readonly fromServer: boolean;

  constructor(details: ErrorDetails) {
    const wrong = (details.fields ?? []).map((it) => `${it.field}: ${it.description}`).join("; ");
    super(`${details.reason}: ${details.message}${wrong && ` (${wrong})`}`, { cause: details.cause });
    this.name = "ContextdError";
    this.code = details.code;
    this.reason = details.reason;
    this.metadata = details.metadata ?? {};
    this.fields = details.fields ?? [];
    this.quota = details.quota ?? [];
    this.retryAfter = details.retryAfter;
    this.fromServer = details.fromServer ?? false;
  }

  /** The same request may reach the server later, and may be sent again. */
  get transient(): boolean {
    if (this.reason === "PROVIDER_FAILED") return false;
    if (this.code === status.UNAVAILABLE || this.code === status.DEADLINE_EXCEEDED) return true;
    return this.reason === "RATE_LIMITED" || this.odd;
  }

  /** Every status of contextd says a reason, so this came from a connection that broke or from a proxy. @internal */
  get odd(): boolean {
    const broken = [status.INTERNAL, status.UNKNOWN, status.CANCELLED, status.RESOURCE_EXHAUSTED];
    return !this.fromServer && broken.includes(this.code);
  }
}

/** The first connection to the server did not come about: the message says why, and what to do. */
export class ServerUnreachableError extends ContextdError {
  constructor(details: ErrorDetails) {
    super(details);
    this.name = "ServerUnreachableError";
  }
}

/** A turn that failed: `run.result()` rejects with it. The transcript stays valid. */
export class TurnFailedError extends Error {
  /** Why, e.g. `provider_overloaded`. */
  readonly reason: string;
  constructor(
    /** What went wrong. */
    readonly failure: Failure,
    /** The turn. */
    readonly turnId: string,
  ) {
    super(`${failure.reason}: ${failure.message}`);
    this.name = "TurnFailedError";
    this.reason = failure.reason;
  }
}

/** The input waited for a running turn and was withdrawn, expired or dropped: no turn took it. */
export class InputNotTakenError extends Error {
  constructor(
    /** Its id in the queue. */
    readonly queuedMessageId: string,
    readonly outcome: "cancelled" | "expired" | "dropped",
    /** Why it was dropped (DropReason). */
    readonly reason = "",
  ) {
    super(`the queued input ${queuedMessageId} was not taken: ${outcome}${reason && ` (${reason})`}`);
    this.name = "InputNotTakenError";
  }
}

/** Reads a gRPC status with its details. */
export function fromService(error: ServiceError): ContextdError {
  const details = readDetails(error.metadata);
  return new ContextdError({
    code: error.code,
    reason: details.reason ?? status[error.code] ?? "UNKNOWN",
    message: error.details || error.message,
    ...details,
    fromServer: details.reason !== undefined,
    cause: error,
  } as ErrorDetails);
}

/** Any error as one of ours. */
export function asContextdError(error: unknown): ContextdError {
  if (error instanceof ContextdError) return error;
  if (error instanceof Error && "code" in error && "metadata" in error) return fromService(error as ServiceError);
  const message = error instanceof Error ? error.message : String(error);
  return new ContextdError({ code: status.UNKNOWN, reason: "CLIENT", message, fromServer: true, cause: error });
}

function readDetails(metadata: Metadata | undefined): Partial<ErrorDetails> {
  const found: Partial<ErrorDetails> = {};
  for (const value of metadata?.get("grpc-status-details-bin") ?? []) {
    if (typeof value === "string") continue;
    for (const any of messages(value, 3)) {
      const type = text(any, 1).split("/").pop();
      const body = messages(any, 2)[0] ?? new Uint8Array();
      if (type === "google.rpc.ErrorInfo") {
        found.reason = text(body, 1);
        found.metadata = Object.fromEntries(messages(body, 3).map((entry) => [text(entry, 1), text(entry, 2)]));
      } else if (type === "google.rpc.BadRequest") {
        found.fields = messages(body, 1).map((it) => ({
          field: text(it, 1),
          description: text(it, 2),
          reason: text(it, 3),
        }));
      } else if (type === "google.rpc.QuotaFailure") {
        found.quota = messages(body, 1).map((it) => ({ subject: text(it, 1), description: text(it, 2) }));
      } else if (type === "google.rpc.RetryInfo") {
        const delay = messages(body, 1)[0] ?? new Uint8Array();
        found.retryAfter = number(delay, 1) * 1000 + number(delay, 2) / 1e6;
      }
    }
  }
  return found;
}

// The details are a handful of messages of google.rpc, read here field by field in place of generated code.
function messages(bytes: Uint8Array, wanted: number): Uint8Array[] {
  const reader = new BinaryReader(bytes);
  const found: Uint8Array[] = [];
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === wanted && wire === 2) found.push(reader.bytes());
    else reader.skip(wire);
  }
  return found;
}

function text(bytes: Uint8Array, field: number): string {
  return Buffer.from(messages(bytes, field)[0] ?? []).toString("utf8");
}

function number(bytes: Uint8Array, wanted: number): number {
  const reader = new BinaryReader(bytes);
  let found = 0;
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === wanted && wire === 0) found = Number(reader.int64());
    else reader.skip(wire);
  }
  return found;
}
