/** Client of contextd. */
export type { Decision } from "./approval.js";
export { Contextd, type SessionOptions } from "./client.js";
export {
  ContextdError,
  type FieldViolation,
  InputNotTakenError,
  type QuotaViolation,
  ServerUnreachableError,
  TurnFailedError,
} from "./errors.js";
export type { Discarded, Reconnecting, RunEvent, ServerEvent } from "./events.js";
export type { Compaction, ContextStats, Message, Part, QueuedMessage, Turn, UsageTotals } from "./gen/index.js";
export { type Action, Machine, type MachineOptions } from "./machine.js";
export type { ContextdOptions, Log } from "./options.js";
export { type MediaSource, mediaPart } from "./parts.js";
export type { ApprovalRequest, Run, RunResult } from "./run.js";
export type { Format, Input, Prepared, RunOptions, Session } from "./session.js";
export { type Tool, type ToolContext, type ToolDefinition, type ToolLike, tool } from "./tools.js";
