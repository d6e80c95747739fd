/**
 * The core of a turn as a state machine without input or output: it takes events, errors and answers, and says what
 * to do next. `run.ts` does it.
 */
import { delay } from "./backoff.js";
import type { ContextdError } from "./errors.js";
import { place, plain, type RunEvent } from "./events.js";
import type {
  AnswerReceipt,
  Approval,
  Event,
  Failure,
  PendingApproval,
  PendingCall,
  ToolCall,
  ToolResult,
  TurnResult,
} from "./gen/index.js";
import { textOf, textPart } from "./parts.js";
import { type Said, Words } from "./words.js";

/** An answer to a call: its result, or a decision about it. */
export type Answer = { result: Partial<ToolResult> & { callId: string } } | { approval: Approval };

/** How a turn ended. */
export interface Ending {
  status: "completed" | "cancelled" | "failed";
  /** E.g. `stop`, `requested`, `provider_overloaded`. */
  reason: string;
  turnId: string;
  sessionId: string;
  result: TurnResult | undefined;
  failure: Failure | undefined;
  /** The text of the last assistant message; undefined when this run has not seen it. */
  text: string | undefined;
}

/** What to do next. */
export type Action =
  | { do: "yield"; event: RunEvent }
  /** Open the stream after this seq, so much later. */
  | { do: "open"; after: number; delay: number }
  | { do: "execute"; call: ToolCall; turnId: string }
  | { do: "ask"; call: ToolCall }
  | { do: "submit"; callId: string; answer: Answer; delay: number }
  /** The call has its result, or never will: a tool that runs is not needed any more. */
  | { do: "close"; callId: string }
  | { do: "finish"; ending: Ending }
  | { do: "fail"; error: ContextdError };

/** What a machine is about. */
export interface MachineOptions {
  /** The request that runs the turn; empty for a turn that is only taken up. */
  requestId: string;
  /** A turn that is taken up: its calls are ours. */
  turnId?: string;
  /** The last seq handled. */
  after?: number;
  /** Whether this run executes tools. */
  tools?: boolean;
  /** Milliseconds without a server before it gives up. */
  patience?: number;
  random?: () => number;
}

/** One run, from its request to the end of its turn. */
export class Machine {
  /** The last seq handled. */
  after: number;
  private readonly words = new Words();
  private readonly ours = new Set<string>();
  private readonly begun = new Set<string>();
  private readonly asked = new Set<string>();
  private readonly open = new Map<string, { answer: Answer; attempts: number }>();
  private readonly inputs = new Map<string, number>();
  private readonly random: () => number;
  private queued: string | undefined;
  private admitted = false;
  private attempts = 0;
  private lost: number | undefined;
  private final: { messageId: string; text: string } | undefined;
  private ending: Omit<Ending, "text"> | undefined;
  private over = false;

  constructor(private readonly options: MachineOptions) {
    this.after = options.after ?? 0;
    this.random = options.random ?? Math.random;
    if (options.turnId) this.ours.add(options.turnId);
  }

  /** The id of the input in the queue, while it waits there. */
  get waitsAs(): string | undefined {
    return this.queued;
  }

  /** Begins. */
  start(): Action[] {
    return [{ do: "open", after: this.after, delay: 0 }];
  }

  /** The stream brought an event. */
  event(event: Event): Action[] {
    if (this.over) return [];
    this.attempts = 0;
    this.lost = undefined;
    if (event.seq > 0 && event.seq <= this.after) return [];
    const actions = this.handle(event);
    if (event.seq > 0) this.after = event.seq;
    return actions;
  }

  /** The stream ended: well, or with an error. */
  ended(now: number, error?: ContextdError): Action[] {
    if (this.over) return [];
    if (!error) return this.finish();
    const retriable = error.transient && (this.admitted || error.reason !== "RATE_LIMITED");
    this.lost ??= now;
    if (!retriable || now - this.lost > (this.options.patience ?? 300_000)) {
      this.over = true;
      return [{ do: "fail", error }];
    }
    this.attempts += 1;
    const wait = delay(this.attempts, this.random(), error.retryAfter);
    return [
      { do: "yield", event: { type: "reconnecting", attempt: this.attempts, delay: wait, reason: error.reason } },
      { do: "open", after: this.after, delay: wait },
    ];
  }

  /** A tool has its result, or a person decided. */
  answer(answer: Answer): Action[] {
    const callId = "result" in answer ? answer.result.callId : answer.approval.callId;
    if (this.over || !(this.begun.has(callId) || this.asked.has(callId))) return [];
    this.open.set(callId, { answer, attempts: 0 });
    return [{ do: "submit", callId, answer, delay: 0 }];
  }

  /** The server took an answer, or did not. */
  submitted(callId: string, outcome: AnswerReceipt | ContextdError): Action[] {
    const open = this.open.get(callId);
    if (this.over || !open) return [];
    if (outcome instanceof Error) {
      if (outcome.transient) return this.again(callId, open, outcome.retryAfter);
      this.open.delete(callId);
      if (outcome.reason === "INVALID_REQUEST" && "result" in open.answer && open.answer.result.outcome !== "error") {
        const text = `The tool's result could not be stored. ${outcome.message}`;
        return this.answer({ result: { callId, outcome: "error", parts: [textPart(text)] } });
      }
      this.over = true;
      return [{ do: "fail", error: outcome }];
    }
    if (outcome.status === "not_requested") return this.again(callId, open);
    this.open.delete(callId);
    return [];
  }

  private again(callId: string, open: { answer: Answer; attempts: number }, asked?: number): Action[] {
    open.attempts += 1;
    return [{ do: "submit", callId, answer: open.answer, delay: delay(open.attempts, this.random(), asked) }];
  }

  private finish(): Action[] {
    this.over = true;
    const { result, ...ending } = this.ending ?? {
      status: "cancelled",
      reason: "withdrawn",
      turnId: "",
      sessionId: "",
      failure: undefined,
    };
    const last = result?.finalMessageId;
    const text = !last ? "" : this.final?.messageId === last ? this.final.text : undefined;
    return [{ do: "finish", ending: { ...ending, result, text } as Ending }];
  }

  private handle(event: Event): Action[] {
    const payload = event.payload;
    const shown = plain(event);
    if (!payload || !shown) return [];
    const show: Action[] = this.concerns(event) ? [{ do: "yield", event: shown }] : [];
    switch (payload.$case) {
      case "heartbeat":
        return [];
      case "admitted":
        this.admit(event.turnId, payload.value.admission, payload.value.queuedMessageId);
        return show;
      case "turnStarted":
        if (payload.value.requestId && payload.value.requestId === this.options.requestId) {
          this.ours.add(event.turnId);
          this.queued = undefined;
          return [{ do: "yield", event: shown }];
        }
        return show;
      case "messagesApplied":
        if (payload.value.messages.some((it) => it.queuedMessageId === this.queued)) this.queued = undefined;
        return [{ do: "yield", event: shown }];
      case "textDelta":
      case "reasoningDelta": {
        if (!this.concerns(event)) return [];
        const { messageId, partIndex, byteOffset, text } = payload.value;
        const kind = payload.$case === "textDelta" ? "text" : "reasoning";
        return this.say(event, this.words.delta(kind, messageId, partIndex, byteOffset, text));
      }
      case "toolInputDelta": {
        const key = `${payload.value.messageId} ${payload.value.partIndex}`;
        const known = this.inputs.get(key) ?? 0;
        const end = payload.value.byteOffset + Buffer.byteLength(payload.value.text);
        if (payload.value.byteOffset > known || end <= known || !this.concerns(event)) return [];
        this.inputs.set(key, end);
        const text = Buffer.from(payload.value.text)
          .subarray(known - payload.value.byteOffset)
          .toString();
        return [{ do: "yield", event: { ...shown, text, byteOffset: known } as RunEvent }];
      }
      case "messageCommitted": {
        const message = payload.value.message;
        if (message?.role !== "assistant" || !this.concerns(event)) return show;
        this.inputs.clear();
        this.final = { messageId: message.messageId, text: textOf(message.parts) };
        return [...this.say(event, this.words.commit(message.messageId, message.parts)), ...show];
      }
      case "sync":
        return [...this.sync(event, payload.value), ...show];
      case "toolCallRequested":
        return [...show, ...(event.replay ? [] : this.request(event.turnId, payload.value))];
      case "approvalRequested":
        return [...show, ...(event.replay ? [] : this.ask(event.turnId, payload.value))];
      case "toolCallCompleted":
        return [...show, ...this.settle(payload.value.result?.callId ?? "")];
      case "toolCallCancelled":
        return [...show, ...this.settle(payload.value.callId)];
      case "turnCompleted":
        return this.end(event, "completed", payload.value.reason, payload.value.result, show);
      case "turnCancelled":
        return this.end(event, "cancelled", payload.value.cause, payload.value.result, show);
      case "turnFailed":
        return this.end(
          event,
          "failed",
          payload.value.failure?.reason ?? "",
          payload.value.result,
          show,
          payload.value.failure,
        );
      default:
        return show;
    }
  }

  private admit(turnId: string, admission: string, queuedMessageId: string): void {
    if (admission === "queued") this.queued = queuedMessageId;
    else if (turnId && !this.queued && !(this.admitted && this.ours.size === 0)) this.ours.add(turnId);
    this.admitted = true;
  }

  /** While the input waits, the turn that runs is another run's. */
  private concerns(event: Event): boolean {
    return this.queued === undefined || event.payload?.$case === "admitted" || !event.turnId;
  }

  private sync(event: Event, sync: Extract<Event["payload"], { $case: "sync" }>["value"]): Action[] {
    const open = sync.openMessage;
    const said = open && this.concerns(event) ? this.say(event, this.words.whole(open.messageId, open.parts)) : [];
    const calls = sync.pendingCalls.flatMap((call) => this.request(event.turnId, call));
    const approvals = sync.pendingApprovals.flatMap((call) => this.ask(event.turnId, call));
    return [...said, ...calls, ...approvals];
  }

  private request(turnId: string, pending: PendingCall): Action[] {
    const call = pending.call;
    if (!call || pending.executor !== "host" || !this.ours.has(turnId) || this.options.tools === false) return [];
    if (this.begun.has(call.callId)) return [];
    this.begun.add(call.callId);
    this.open.delete(call.callId);
    return [{ do: "execute", call, turnId }];
  }

  private ask(turnId: string, pending: PendingApproval): Action[] {
    const call = pending.call;
    if (!call || !this.ours.has(turnId) || this.asked.has(call.callId) || this.options.tools === false) return [];
    this.asked.add(call.callId);
    return [{ do: "ask", call }];
  }

  private settle(callId: string): Action[] {
    this.open.delete(callId);
    return this.begun.delete(callId) ? [{ do: "close", callId }] : [];
  }

  private say(event: Event, said: Said): Action[] {
    const at = place(event);
    const actions: Action[] = [];
    if (said.discarded) actions.push({ do: "yield", event: { ...at, seq: 0, type: "discarded", ...said.discarded } });
    for (const { kind, ...piece } of said.pieces) {
      const type = kind === "text" ? "text_delta" : "reasoning_delta";
      actions.push({ do: "yield", event: { ...at, seq: 0, type, ...piece } });
    }
    return actions;
  }

  private end(
    event: Event,
    status: Ending["status"],
    reason: string,
    result: TurnResult | undefined,
    show: Action[],
    failure?: Failure,
  ): Action[] {
    if (!this.concerns(event)) return [];
    const said = this.say(event, this.words.end());
    this.ending = { status, reason, turnId: event.turnId, sessionId: event.sessionId, result, failure };
    const closed = [...this.begun].flatMap((callId) => this.settle(callId));
    this.open.clear();
    return [...said, ...closed, ...show];
  }
}
