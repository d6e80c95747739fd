/** Client of contextd. */
export { Contextd, type SessionOptions } from "./client.js";
export {
  ContextdError,
  type FieldViolation,
  InputNotTakenError,
  type QuotaViolation,
  TurnFailedError,
} from "./errors.js";
export type { Discarded, Reconnecting, RunEvent, ServerEvent } from "./events.js";
export type { Compaction, ContextStats, Message, Part, QueuedMessage, Turn, UsageTotals } from "./gen/index.js";
export { type Action, Machine, type MachineOptions } from "./machine.js";
export type { ContextdOptions } from "./options.js";
export type { ApprovalRequest, Decision, Run, RunResult } from "./run.js";
export type { Format, Input, Prepared, RunOptions, Session } from "./session.js";
export { type Tool, type ToolContext, type ToolDefinition, type ToolLike, tool } from "./tools.js";
