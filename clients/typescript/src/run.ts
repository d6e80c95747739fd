/** A run: does what the machine says. Streams, tools, timers and the consumer are here. */
import { randomUUID } from "node:crypto";
import { type Decision, NOT_DECIDED, verdictOf } from "./approval.js";
import { asContextdError, ContextdError, TurnFailedError } from "./errors.js";
import type { RunEvent } from "./events.js";
import {
  type Approval,
  type Event,
  QueueServiceDefinition,
  type ToolCall,
  TurnServiceDefinition,
  type UsageTotals,
} from "./gen/index.js";
import { type Action, type Answer, type Ending, Machine, type MachineOptions } from "./machine.js";
import { textPart } from "./parts.js";
import { type Rpc, sleep } from "./rpc.js";
import { type Tool, type ToolContext, ToolFailure } from "./tools.js";

/** A call that a person is asked about. */
export interface ApprovalRequest {
  callId: string;
  toolName: string;
  arguments: unknown;
}

/** How a turn ended. */
export interface RunResult {
  status: "completed" | "cancelled";
  /** `stop`, `max_steps`, `length`, `content_filter`, `budget`, `deadline`; or what cancelled it. */
  reason: string;
  /** The text of the last message. */
  text: string;
  turnId: string;
  sessionId: string;
  /** Tokens of all its calls. */
  usage: UsageTotals | undefined;
  steps: number;
}

/** What a run needs. */
export interface RunSetup {
  rpc: Rpc;
  sessionId: string;
  tools: Map<string, Tool>;
  machine: Omit<MachineOptions, "patience">;
  /** Opens the stream after a seq. */
  open(after: number, signal: AbortSignal): AsyncIterable<{ event?: Event | undefined }>;
  /** The text of the newest message, for a run that began after it. */
  lastText(messageId: string): Promise<string>;
  approve?: ((call: ApprovalRequest) => Decision | Promise<Decision>) | undefined;
  /** Cancels the turn when it is aborted. */
  signal?: AbortSignal | undefined;
}

/** Events that wait for the consumer of a run. */
const WAITING = 2_048;
/** What a stream asks for: a heartbeat so often, in seconds. */
export const STREAM = { heartbeatInterval: { seconds: 5, nanos: 0 } };
/** Milliseconds of silence, four heartbeats, after which a stream is opened anew. */
const SILENCE = 20_000;

/**
 * A turn that runs: an async iterable of its events, for one consumer. It begins at once and goes on without one:
 * tools run, results are submitted and lost connections are opened again until the turn ends or `detach` is called.
 * Events wait for a consumer, as far as there is room for them; one that is slow slows the stream down.
 */
export class Run implements AsyncIterable<RunEvent>, AsyncDisposable {
  readonly sessionId: string;
  /** Give it to `session.run` with the same input to attach to this turn from another process. */
  readonly requestId: string;
  private readonly machine: Machine;
  private readonly stop = new AbortController();
  private readonly buffer: RunEvent[] = [];
  private readonly ending: Promise<Ending>;
  private settle!: { resolve(ending: Ending): void; reject(error: unknown): void };
  private readonly known: Promise<void>;
  private admitted!: () => void;
  private readonly named: Promise<void>;
  private turnKnown!: () => void;
  private wake: (() => void) | undefined;
  private room: (() => void) | undefined;
  private consumer: "none" | "reads" | "left" | "missed";
  private closed = false;

  /** @internal */
  constructor(private readonly setup: RunSetup) {
    this.sessionId = setup.sessionId;
    this.requestId = setup.machine.requestId;
    this.consumer = setup.machine.session ? "reads" : "none"; // A session is followed only to be read.
    this.machine = new Machine({ ...setup.machine, patience: setup.rpc.settings.patience });
    this.ending = new Promise((resolve, reject) => {
      this.settle = { resolve, reject };
    });
    this.known = new Promise((resolve) => {
      this.admitted = resolve;
    });
    this.named = new Promise((resolve) => {
      this.turnKnown = resolve;
    });
    this.ending.catch(() => {}).finally(() => this.close());
    const cancel = () => void this.cancel("aborted").catch(() => {});
    setup.signal?.addEventListener("abort", cancel, { once: true, signal: this.stop.signal });
    this.act(this.machine.start());
    if (setup.signal?.aborted) cancel();
  }

  /** The last seq handled: what to give as `after` to go on from here elsewhere. */
  get cursor(): number {
    return this.machine.after;
  }

  /** The turn; empty before it is known. */
  get turnId(): string {
    return this.machine.turnId;
  }

  /**
   * The end. Rejects with a TurnFailedError when the turn failed, an InputNotTakenError when the input waited and no
   * turn took it, and a ContextdError when the turn could not be followed.
   */
  async result(): Promise<RunResult> {
    const ending = await this.ending;
    const { status, reason, turnId, sessionId, result, failure } = ending;
    if (status === "failed" && failure) throw new TurnFailedError(failure, turnId);
    const last = result?.finalMessageId;
    const text = ending.text ?? (last ? await this.setup.lastText(last) : "");
    return {
      status: status as RunResult["status"],
      reason,
      text,
      turnId,
      sessionId,
      usage: result?.totalUsage,
      steps: result?.stepCount ?? 0,
    };
  }

  /** Cancels the turn, or withdraws the input while that waits for another turn. The run ends with it. */
  async cancel(reason = ""): Promise<void> {
    // Until the request is admitted it is not known what to cancel.
    await Promise.race([this.known, this.ending.catch(() => {})]);
    if (this.closed) return;
    const { sessionId } = this;
    const queuedMessageId = this.machine.waitsAs;
    if (queuedMessageId) {
      const { cancelQueuedMessage } = QueueServiceDefinition.methods;
      const request = { sessionId, queuedMessageId, requestId: randomUUID() as string };
      const { queuedMessage } = await this.setup.rpc.unary(QueueServiceDefinition, cancelQueuedMessage, request);
      if (queuedMessage?.state === "cancelled") return;
    }
    await Promise.race([this.named, this.ending.catch(() => {})]);
    if (this.closed) return;
    const request = {
      sessionId,
      turnId: this.turnId,
      requestId: randomUUID() as string,
      reason: reason.slice(0, 1024),
    };
    await this.setup.rpc.unary(TurnServiceDefinition, TurnServiceDefinition.methods.cancelTurn, request);
  }

  /** Lets a call run that waits for approval, perhaps with other arguments. */
  approve(callId: string, args?: unknown): void {
    const editedArgumentsJson = args === undefined ? "" : JSON.stringify(args);
    this.decide({ callId, decision: "approve", editedArgumentsJson, reason: "" });
  }

  /** Denies a call; the model reads the reason. */
  deny(callId: string, reason = ""): void {
    this.decide({ callId, decision: "deny", editedArgumentsJson: "", reason });
  }

  /**
   * Leaves the turn to itself: it goes on at the server until it needs a tool. Tools that run go on too; a run of
   * this client that resumes the turn submits their results.
   */
  detach(): void {
    this.settle.reject(
      new ContextdError({ code: 1, reason: "DETACHED", message: "the run was detached", fromServer: true }),
    );
    this.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.detach();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<RunEvent> {
    if (this.consumer === "missed") {
      throw new Error(`more than ${WAITING} events came before the run was iterated; iterate it when it begins`);
    }
    this.consumer = "reads";
    try {
      for (;;) {
        const event = this.buffer.shift();
        if (this.buffer.length < WAITING) this.room?.();
        if (event) yield event;
        else if (this.closed) break;
        else await new Promise<void>((resolve) => (this.wake = resolve));
      }
    } finally {
      this.drop("left");
    }
    await this.ending;
  }

  /** Keeps no events: no consumer is there, or will be. */
  private drop(consumer: "left" | "missed"): void {
    this.consumer = consumer;
    this.buffer.length = 0;
    this.room?.();
  }

  private act(actions: Action[]): void {
    for (const action of actions) {
      switch (action.do) {
        case "yield":
          this.push(action.event);
          break;
        case "open":
          void this.read(action.after, action.delay);
          break;
        case "execute":
          void this.execute(action.call, action.turnId);
          break;
        case "ask":
          void this.ask(action.call);
          break;
        case "submit":
          void this.submit(action.key, action.answer, action.delay);
          break;
        case "close":
          this.setup.rpc.ledger.close(this.sessionId, action.callId);
          break;
        case "finish":
          this.settle.resolve(action.ending);
          this.close();
          break;
        case "fail":
          this.settle.reject(action.error);
          this.close();
          break;
      }
    }
  }

  private async read(after: number, wait: number): Promise<void> {
    await sleep(wait, this.stop.signal);
    if (this.stop.signal.aborted) return;
    let error: ContextdError | undefined;
    try {
      for await (const { event } of this.setup.open(after, this.stop.signal)) {
        if (!event) continue;
        this.act(this.machine.event(event));
        this.admitted();
        if (this.turnId) this.turnKnown();
        // A consumer that is slow slows the stream down.
        if (this.consumer === "reads" && this.buffer.length >= WAITING && !this.closed)
          await new Promise<void>((resolve) => (this.room = resolve));
      }
    } catch (thrown) {
      error = asContextdError(thrown);
      if (!this.stop.signal.aborted) this.setup.rpc.failed(error);
    }
    if (!this.stop.signal.aborted) this.act(this.machine.ended(Date.now(), error));
  }

  private async execute(call: ToolCall, turnId: string): Promise<void> {
    const { callId, toolName, argumentsJson } = call;
    const tool = this.setup.tools.get(toolName);
    const result = await this.setup.rpc.ledger.run(this.sessionId, callId, async (abort) => {
      const context = { callId, toolName, sessionId: this.sessionId, turnId, signal: abort.signal };
      try {
        if (!tool) throw new ToolFailure(`this host has no tool ${toolName}`);
        return { callId, outcome: "success", parts: await inTime(tool, argumentsJson, context, abort) };
      } catch (error) {
        if (!(error instanceof ToolFailure)) {
          const { log } = this.setup.rpc.settings;
          log.error(`tool ${toolName} failed (call ${callId}, session ${this.sessionId})`, error);
        }
        const text = error instanceof Error ? error.message : String(error);
        return { callId, outcome: "error", parts: [textPart(text)] };
      }
    });
    this.act(this.machine.answer({ result }));
  }

  private async ask(call: ToolCall): Promise<void> {
    if (!this.setup.approve) return;
    const { callId, toolName } = call;
    try {
      const answer = await this.setup.approve({ callId, toolName, arguments: JSON.parse(call.argumentsJson || "{}") });
      const verdict = verdictOf(answer);
      if (verdict.run) this.approve(callId, verdict.arguments);
      else this.deny(callId, verdict.reason);
    } catch (error) {
      const { log } = this.setup.rpc.settings;
      log.error(`call ${callId} of tool ${toolName} was denied: the approval callback failed`, error);
      this.deny(callId, NOT_DECIDED);
    }
  }

  private decide(approval: Approval): void {
    this.act(this.machine.answer({ approval }));
  }

  private async submit(key: string, answer: Answer, wait: number): Promise<void> {
    await sleep(wait, this.stop.signal);
    if (this.stop.signal.aborted) return;
    const { submitToolResults } = TurnServiceDefinition.methods;
    const answers = "result" in answer ? { results: [answer.result] } : { approvals: [answer.approval] };
    try {
      const request = { sessionId: this.sessionId, ...answers };
      const signal = this.stop.signal;
      const { receipts } = await this.setup.rpc.unary(TurnServiceDefinition, submitToolResults, request, { signal });
      this.act(this.machine.submitted(key, receipts[0] ?? { callId: "", status: "accepted" }));
    } catch (thrown) {
      if (!this.stop.signal.aborted) this.act(this.machine.submitted(key, asContextdError(thrown)));
    }
  }

  private push(event: RunEvent): void {
    if (this.consumer === "left" || this.consumer === "missed") return;
    const last = this.buffer.at(-1);
    const pieces = event.type === "text_delta" || event.type === "reasoning_delta";
    if (
      pieces &&
      last?.type === event.type &&
      last.messageId === event.messageId &&
      last.partIndex === event.partIndex
    ) {
      last.text += event.text; // A consumer that is slow, or not there yet, gets more at a time.
    } else {
      this.buffer.push({ ...event });
    }
    // A run without a consumer goes on, and does not keep what may never be read.
    if (this.consumer === "none" && this.buffer.length > WAITING) this.drop("missed");
    this.wake?.();
  }

  private close(): void {
    this.closed = true;
    this.stop.abort();
    this.wake?.();
    this.room?.();
  }
}

/** Opens a stream with a watchdog. */
export function watched<T>(streams: (options: { signal: AbortSignal; idle: number }) => T, signal: AbortSignal): T {
  return streams({ signal, idle: SILENCE });
}

/** Runs a tool, at most for its timeout. */
async function inTime(tool: Tool, args: string, context: ToolContext, abort: AbortController) {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    if (tool.timeout === undefined) return;
    timer = setTimeout(() => {
      reject(new ToolFailure(`the tool took longer than ${tool.timeout} ms`));
      abort.abort();
    }, tool.timeout);
  });
  try {
    return await Promise.race([tool.run(args, context), late]);
  } finally {
    clearTimeout(timer);
  }
}
