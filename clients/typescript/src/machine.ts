/**
 * The core of a turn as a state machine without input or output: it takes events, errors and answers, and says what
 * to do next. `run.ts` does it.
 */
import { status } from "@grpc/grpc-js";
import { delay } from "./backoff.js";
import { ContextdError, InputNotTakenError } from "./errors.js";
import { place, plain, type RunEvent } from "./events.js";
import type {
  AnswerReceipt,
  Approval,
  Event,
  Failure,
  Message,
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
  /** Send an answer and report with `submitted`, by its key. */
  | { do: "submit"; key: string; answer: Answer; delay: number }
  /** The call has its result, or never will: a tool that runs is not needed any more. */
  | { do: "close"; callId: string }
  | { do: "finish"; ending: Ending }
  | { do: "fail"; error: ContextdError | InputNotTakenError };

/** What a machine is about. */
export interface MachineOptions {
  /** The request that runs the turn; empty for what is only watched. */
  requestId: string;
  /** A turn that is taken up: its calls are ours. */
  turnId?: string;
  /** Follow the session, not one turn. */
  session?: boolean;
  /** The last seq handled: what came until then is not yielded again. */
  after?: number;
  /** Whether this run executes tools. */
  tools?: boolean;
  /** Milliseconds without a server before it gives up. */
  patience?: number;
  random?: () => number;
}

interface Open {
  answer: Answer;
  attempts: number;
  /** It is on its way; else the server has it, and it is kept in case that is lost. */
  sending: boolean;
  /** It was refused and says so. */
  refused: boolean;
}

/** How often a limit of the tenant is waited for before the request is admitted; afterwards, for as long as it takes. */
const LIMIT_TRIES = 60;
/** Errors in a row that only a broken connection explains, before they are believed. */
const ODD_ERRORS = 20;
/** What a result is refused for by itself; the model is then told so in its place. */
const REFUSED_RESULTS = ["INVALID_REQUEST", "REQUEST_TOO_LARGE"];

/** One run, from its request to the end of its turn. */
export class Machine {
  private seq: number;
  /** What came until this seq was yielded by another process. */
  private hidden: number;
  private readonly words = new Words();
  private readonly ours = new Set<string>();
  private readonly begun = new Set<string>();
  private readonly asked = new Set<string>();
  private readonly answers = new Map<string, Open>();
  private readonly inputs = new Map<string, number>();
  private readonly messages = new Set<string>();
  private readonly random: () => number;
  private turn: string;
  private queuedId = "";
  private waits = false;
  private notTaken: InputNotTakenError | undefined;
  private admitted = false;
  private attempts = 0;
  private odd = 0;
  private lost: number | undefined;
  private final: { messageId: string; text: string } | undefined;
  private ending: Omit<Ending, "text"> | undefined;
  private over = false;

  constructor(private readonly options: MachineOptions) {
    const { requestId, turnId = "", after = 0, random = Math.random } = options;
    this.random = random;
    this.turn = turnId;
    if (turnId) this.ours.add(turnId);
    // A request is followed from its beginning, which says whose turn it is.
    this.hidden = requestId ? after : 0;
    this.seq = requestId ? 0 : after;
  }

  /** The last seq handled. */
  get after(): number {
    return Math.max(this.seq, this.hidden);
  }

  /** The turn: the one that the request started, or that took its input; empty before it is known. */
  get turnId(): string {
    return this.turn;
  }

  /** The id of the input in the queue, while it waits there. */
  get waitsAs(): string | undefined {
    return this.waits ? this.queuedId : undefined;
  }

  /** Begins. */
  start(): Action[] {
    return [{ do: "open", after: this.seq, delay: 0 }];
  }

  /** The stream brought an event. */
  event(event: Event): Action[] {
    if (this.over) return [];
    this.attempts = 0;
    this.odd = 0;
    this.lost = undefined;
    if (event.seq > 0 && event.seq <= this.seq) return [];
    const actions = this.handle(event);
    if (event.seq === 0) return actions;
    this.seq = event.seq;
    return event.seq > this.hidden ? actions : actions.filter((it) => it.do !== "yield");
  }

  /** The stream ended: well, or with an error. */
  ended(now: number, error?: ContextdError): Action[] {
    if (this.over) return [];
    if (error) return this.broke(now, error);
    if (this.notTaken) return this.fail(this.notTaken);
    if (this.ending || this.options.session) return this.finish();
    // A proxy may end a stream in good order, a server does so with the turn.
    const message = "the stream ended before its turn";
    return this.reopen(now, new ContextdError({ code: status.UNAVAILABLE, reason: "UNAVAILABLE", message }));
  }

  /** A tool has its result, or a person decided. */
  answer(answer: Answer, refused = false): Action[] {
    const callId = "result" in answer ? answer.result.callId : answer.approval.callId;
    const known = "result" in answer ? this.begun : this.asked;
    if (this.over || !known.has(callId)) return [];
    const key = keyOf("result" in answer ? "result" : "approval", callId);
    const open = { answer, attempts: 0, sending: true, refused };
    this.answers.set(key, open);
    return [{ do: "submit", key, answer, delay: 0 }];
  }

  /** The server took an answer, or did not. It is kept until the call is closed. */
  submitted(key: string, outcome: AnswerReceipt | ContextdError): Action[] {
    const open = this.answers.get(key);
    if (this.over || !open?.sending) return [];
    open.sending = false;
    if (outcome instanceof Error) {
      if (outcome.transient) return this.again(key, open, outcome.retryAfter);
      return this.refused(key, open, outcome);
    }
    return outcome.status === "not_requested" ? this.again(key, open) : [];
  }

  private again(key: string, open: Open, asked?: number): Action[] {
    open.attempts += 1;
    open.sending = true;
    return [{ do: "submit", key, answer: open.answer, delay: delay(open.attempts, this.random(), asked) }];
  }

  private refused(key: string, open: Open, error: ContextdError): Action[] {
    this.answers.delete(key);
    if (error.reason === "SESSION_NOT_FOUND") return []; // The stream reports it.
    if (!("result" in open.answer) || open.refused || !REFUSED_RESULTS.includes(error.reason)) return this.fail(error);
    const { callId } = open.answer.result;
    const text = `The tool's result could not be stored. ${error.message}`;
    return this.answer({ result: { callId, outcome: "error", parts: [textPart(text)] } }, true);
  }

  // --- Connections ---------------------------------------------------------------------------------

  private broke(now: number, error: ContextdError): Action[] {
    switch (error.reason) {
      case "EVENTS_EXPIRED":
        this.seq = Math.max(this.seq, Number(error.metadata.oldest_seq ?? 1) - 1);
        return this.reopen(now, error);
      case "EVENTS_LOST":
      case "CURSOR_AHEAD":
        return this.options.session ? this.fail(error) : this.restart(now, error);
      case "SESSION_NOT_FOUND":
        return this.ending ? this.finish() : this.fail(error); // It was deleted, and its turn ended with it.
      case "RATE_LIMITED":
        return this.admitted || this.attempts < LIMIT_TRIES ? this.reopen(now, error) : this.fail(error);
      default:
        if (!error.transient || (error.odd && ++this.odd > ODD_ERRORS)) return this.fail(error);
        return this.reopen(now, error);
    }
  }

  /** The server lost events that were shown. The same again: attached if it is still there, else carried out anew. */
  private restart(now: number, error: ContextdError): Action[] {
    this.seq = 0;
    this.hidden = 0;
    this.ending = undefined;
    return this.reopen(now, error);
  }

  private reopen(now: number, error: ContextdError): Action[] {
    this.lost ??= now;
    if (now - this.lost > (this.options.patience ?? 300_000)) return this.fail(error);
    this.attempts += 1;
    const wait = delay(this.attempts, this.random(), error.retryAfter);
    return [
      { do: "yield", event: { type: "reconnecting", attempt: this.attempts, delay: wait, reason: error.reason } },
      { do: "open", after: this.seq, delay: wait },
    ];
  }

  private fail(error: ContextdError | InputNotTakenError): Action[] {
    this.over = true;
    return [{ do: "fail", error }];
  }

  private finish(): Action[] {
    this.over = true;
    const { result, ...ending } = this.ending ?? {
      status: "completed" as const,
      reason: "",
      turnId: "",
      sessionId: "",
      failure: undefined,
    };
    const last = result?.finalMessageId;
    const text = !last ? "" : this.final?.messageId === last ? this.final.text : undefined;
    return [{ do: "finish", ending: { ...ending, result, text } as Ending }];
  }

  // --- Events --------------------------------------------------------------------------------------

  private handle(event: Event): Action[] {
    const payload = event.payload;
    const shown = plain(event);
    if (!payload || !shown) return [];
    const show = (): Action[] => (this.concerns(event) ? [{ do: "yield", event: shown }] : []);
    switch (payload.$case) {
      case "heartbeat":
        return [];
      case "admitted":
        this.admit(event.turnId, payload.value.admission, payload.value.queuedMessageId);
        return show();
      case "turnStarted":
        this.ending = undefined;
        if (payload.value.requestId && payload.value.requestId === this.options.requestId) this.own(event.turnId);
        return show();
      case "messagesApplied":
        if (this.waits && payload.value.messages.some((it) => it.queuedMessageId === this.queuedId))
          this.taken(event.turnId);
        return show();
      case "queuedMessageCancelled":
        return [...this.withdrawn(payload.value.queuedMessageId, "cancelled"), ...show()];
      case "queuedMessageExpired":
        return [...this.withdrawn(payload.value.queuedMessageId, "expired"), ...show()];
      case "queuedMessageDropped":
        return [...this.withdrawn(payload.value.queuedMessageId, "dropped", payload.value.reason), ...show()];
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
      case "messageCommitted":
        return this.committed(event, payload.value.message, show());
      case "sync":
        return [...this.sync(event, payload.value), ...show()];
      case "toolCallRequested":
        return [...show(), ...(event.replay ? [] : this.request(event.turnId, payload.value))];
      case "approvalRequested":
        return [...show(), ...(event.replay ? [] : this.ask(event.turnId, payload.value))];
      case "toolCallCompleted":
        return [...show(), ...this.settle(payload.value.result?.callId ?? "")];
      case "toolCallCancelled":
        return [...show(), ...this.settle(payload.value.callId)];
      case "turnCompleted":
        return this.end(event, "completed", payload.value.reason, payload.value.result, show());
      case "turnCancelled":
        return this.end(event, "cancelled", payload.value.cause, payload.value.result, show());
      case "turnFailed": {
        const { failure, result } = payload.value;
        return this.end(event, "failed", failure?.reason ?? "", result, show(), failure);
      }
      default:
        return show();
    }
  }

  /** A turn is ours if the request started it. One that took the input while it ran is run by its own host. */
  private admit(turnId: string, admission: string, queuedMessageId: string): void {
    this.admitted = true;
    if (admission === "started") this.own(turnId);
    if (admission === "attached" && turnId) this.turn = turnId;
    if (admission === "queued") {
      this.queuedId = queuedMessageId;
      this.waits = true;
    }
  }

  private own(turnId: string): void {
    this.ours.add(turnId);
    this.taken(turnId);
  }

  private taken(turnId: string): void {
    this.turn = turnId;
    this.waits = false;
    this.notTaken = undefined;
  }

  /** While the input waits, the turn that runs is another run's. */
  private concerns(event: Event): boolean {
    return !this.waits || event.payload?.$case === "admitted" || !event.turnId || event.turnId === this.turn;
  }

  /** A queued message will never be taken. */
  private withdrawn(id: string, outcome: InputNotTakenError["outcome"], reason?: string): Action[] {
    // The answer that named the input may be lost. It is then the last event before the stream ends that says it.
    const unnamed = this.admitted && !this.queuedId && !this.turn && this.options.requestId;
    if (id !== this.queuedId && !unnamed) return [];
    this.notTaken = new InputNotTakenError(id, outcome, reason);
    return [];
  }

  private committed(event: Event, message: Message | undefined, show: Action[]): Action[] {
    if (message) {
      if (this.messages.has(message.messageId)) return []; // After events were lost, the turn is told again.
      this.messages.add(message.messageId);
    }
    if (message?.role !== "assistant" || !this.concerns(event)) return show;
    this.inputs.clear();
    this.final = { messageId: message.messageId, text: textOf(message.parts) };
    return [...this.say(event, this.words.commit(message.messageId, message.parts)), ...show];
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
    this.answers.delete(keyOf("approval", call.callId));
    if (this.begun.has(call.callId)) return this.resend(keyOf("result", call.callId));
    this.begun.add(call.callId);
    return [{ do: "execute", call, turnId }];
  }

  private ask(turnId: string, pending: PendingApproval): Action[] {
    const call = pending.call;
    if (!call || !this.ours.has(turnId) || this.options.tools === false) return [];
    if (this.asked.has(call.callId)) return this.resend(keyOf("approval", call.callId));
    this.asked.add(call.callId);
    return [{ do: "ask", call }];
  }

  /** An answer that was taken, and that the database lost, is sent anew. */
  private resend(key: string): Action[] {
    const open = this.answers.get(key);
    return open && !open.sending ? this.again(key, open) : [];
  }

  private settle(callId: string): Action[] {
    this.answers.delete(keyOf("result", callId));
    this.answers.delete(keyOf("approval", callId));
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
    if (!this.queuedId) this.notTaken = undefined;
    const said = this.say(event, this.words.end());
    this.ending = { status, reason, turnId: event.turnId, sessionId: event.sessionId, result, failure };
    const closed = [...this.begun].flatMap((callId) => this.settle(callId));
    this.answers.clear();
    return [...said, ...closed, ...show];
  }
}

function keyOf(kind: "result" | "approval", callId: string): string {
  return `${kind} ${callId}`;
}
