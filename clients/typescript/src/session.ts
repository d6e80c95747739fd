/** A conversation: runs turns, takes messages, shows what is stored. */
import { randomUUID } from "node:crypto";
import type { Decision } from "./approval.js";
import { delay } from "./backoff.js";
import { asContextdError } from "./errors.js";
import type { RunEvent } from "./events.js";
import {
  type AppendMessagesResponse,
  BlobServiceDefinition,
  type Compaction,
  ContextServiceDefinition,
  type ContextStats,
  type Delivery,
  type Generation,
  type IdleAction,
  type InputMessage,
  type Message,
  type MessageView,
  type PromptFormat,
  type Session as ProtoSession,
  type QueuedMessage,
  QueueServiceDefinition,
  SessionServiceDefinition,
  type Turn,
  type TurnLimits,
  TurnServiceDefinition,
  type Usage,
} from "./gen/index.js";
import { textOf } from "./parts.js";
import { type Init, type Rpc, sleep } from "./rpc.js";
import { type ApprovalRequest, Run, type RunSetup, STREAM, watched } from "./run.js";
import { byName, duration, type Tool, type ToolLike } from "./tools.js";

const TURNS = TurnServiceDefinition;
const SESSIONS = SessionServiceDefinition;
const CONTEXTS = ContextServiceDefinition;
const QUEUE = QueueServiceDefinition;
const BLOBS = BlobServiceDefinition;

/** What a user says: text, or a message with parts. */
export type Input = string | Init<InputMessage>;

/** Options of a run. */
export interface RunOptions {
  /** Tools of this turn. Absent: the session's. */
  tools?: readonly ToolLike[];
  /** Decides about calls of tools with `needsApproval`. Absent: `run.approve` and `run.deny` do. */
  approve?: (call: ApprovalRequest) => Decision | Promise<Decision>;
  /** Cancels the turn. */
  signal?: AbortSignal;
  /** Names the request; the same again attaches to the turn that it started. Default: a new one. */
  requestId?: string;
  /** When attaching: the last seq handled (`run.cursor`). */
  after?: number;
  model?: string;
  limits?: Init<TurnLimits>;
  generation?: Init<Generation>;
  /** What to do when a turn is running. Default `enqueue`. */
  busy?: "enqueue" | "reject" | "interrupt";
}

/** A prompt in a vendor's format. */
export interface Prepared {
  /** The body of the request, or the arguments of `streamText`. */
  // biome-ignore lint/suspicious/noExplicitAny: it is what the vendor's SDK takes
  request: any;
  /** Give it to `record`. */
  contextVersion: number;
  tokens: number;
}

/** The formats of `prepare` and `record`. */
export type Format = Extract<
  PromptFormat,
  "openai_chat" | "openai_responses" | "anthropic" | "gemini" | "ai_sdk" | "ai_sdk_7" | "native"
>;

/** A session. */
export class Session {
  private readonly tools: Map<string, Tool>;

  /** @internal */
  constructor(
    private readonly rpc: Rpc,
    /** Its id. */
    readonly id: string,
    tools: readonly ToolLike[] = [],
  ) {
    this.tools = byName(tools);
  }

  /** Runs a turn. */
  run(input: Input, options: RunOptions = {}): Run {
    return this.execute({ input: message(input) }, options);
  }

  /** Runs a turn on the transcript as it stands: after one that failed, or an import. */
  continue(options: RunOptions = {}): Run {
    return this.execute({ continueTranscript: true }, options);
  }

  /** Takes up the turn that runs now, whoever started it: its waiting calls are run here. Undefined when there is none. */
  async resume(options: Pick<RunOptions, "tools" | "approve" | "signal" | "after"> = {}): Promise<Run | undefined> {
    const { currentTurnId: turnId } = await this.get();
    if (!turnId) return undefined;
    const first = options.after ?? (await this.turn(turnId)).firstSeq - 1;
    const open: RunSetup["open"] = (after, signal) =>
      watched(
        (it) =>
          this.rpc.stream(
            TURNS,
            TURNS.methods.watchEvents,
            { sessionId: this.id, turnId, afterSeq: after, follow: true, stream: STREAM },
            it,
          ),
        signal,
      );
    return this.follow({ requestId: "", turnId, after: first }, open, options);
  }

  /** Sends a message while the agent works: the running turn takes it at its next step. */
  async send(
    input: Input,
    options: { delivery?: Delivery; onIdle?: IdleAction; ttl?: number; requestId?: string } = {},
  ): Promise<QueuedMessage> {
    const { delivery, onIdle, ttl, requestId = randomUUID() } = options;
    const request = {
      sessionId: this.id,
      requestId,
      message: message(input),
      delivery,
      onIdle,
      ttl: ttl ? duration(ttl) : undefined,
    };
    const { queuedMessage } = await this.rpc.unary(QUEUE, QUEUE.methods.enqueueMessage, request);
    return queuedMessage as QueuedMessage;
  }

  /** What occupies the window, and how long it will last. */
  async stats(): Promise<ContextStats> {
    const { stats } = await this.rpc.unary(CONTEXTS, CONTEXTS.methods.getContextStats, { sessionId: this.id });
    return stats as ContextStats;
  }

  /** Compacts now, and waits for it. */
  async compact(
    options: { instructions?: string; targetTokens?: number; requestId?: string } = {},
  ): Promise<Compaction> {
    const request = { sessionId: this.id, requestId: randomUUID() as string, wait: true, ...options };
    const { compaction } = await this.rpc.unary(CONTEXTS, CONTEXTS.methods.compact, request, { timeout: 300_000 });
    return compaction as Compaction;
  }

  /**
   * Cancels the live turn, or the one that is named, and answers once it has ended; undefined when there is none.
   * `rollback` voids its messages.
   */
  async cancel(
    options: { turnId?: string; mode?: "stop" | "rollback"; reason?: string } = {},
  ): Promise<Turn | undefined> {
    // The id keeps a repetition, after an answer that was lost, from the turn that comes next.
    const request = { sessionId: this.id, ...options, requestId: randomUUID() as string };
    const { turn } = await this.rpc.unary(TURNS, TURNS.methods.cancelTurn, request);
    return turn;
  }

  /** Follows the session, without running tools: from the first event, or after a seq. Goes on after any disconnect. */
  watch(options: { after?: number; signal?: AbortSignal; follow?: boolean } = {}): AsyncIterable<RunEvent> {
    const follow = options.follow ?? true;
    const open: RunSetup["open"] = (after, signal) =>
      watched(
        (it) =>
          this.rpc.stream(
            TURNS,
            TURNS.methods.watchEvents,
            { sessionId: this.id, afterSeq: after, follow, stream: STREAM },
            it,
          ),
        signal,
      );
    const run = this.follow({ requestId: "", session: true, after: options.after, tools: false }, open, {});
    options.signal?.addEventListener("abort", () => run.detach(), { once: true });
    return watching(run, options.signal);
  }

  /** The messages, oldest first: all, or (`live`) what the model sees. */
  async *messages(options: { view?: MessageView; newestFirst?: boolean } = {}): AsyncGenerator<Message> {
    let pageToken = "";
    do {
      const request = { sessionId: this.id, pageToken, ...options };
      const page = await this.rpc.unary(SESSIONS, SESSIONS.methods.listMessages, request);
      yield* page.messages;
      pageToken = page.nextPageToken;
    } while (pageToken);
  }

  /** A new session with the transcript of this one, up to a seq perhaps. */
  async fork(options: { atSeq?: number; id?: string; requestId?: string } = {}): Promise<Session> {
    const { atSeq, id: newSessionId, requestId = randomUUID() } = options;
    const request = { sessionId: this.id, atSeq, newSessionId, requestId };
    const { session } = await this.rpc.unary(SESSIONS, SESSIONS.methods.forkSession, request);
    return new Session(this.rpc, session?.sessionId ?? "", [...this.tools.values()]);
  }

  /** A turn as it is stored. */
  private async turn(turnId: string): Promise<Turn> {
    const { turn } = await this.rpc.unary(TURNS, TURNS.methods.getTurn, { sessionId: this.id, turnId });
    return turn as Turn;
  }

  /** The session as it is stored. */
  async get(): Promise<ProtoSession> {
    const { session } = await this.rpc.unary(SESSIONS, SESSIONS.methods.getSession, { sessionId: this.id });
    return session as ProtoSession;
  }

  /** Changes what is set. */
  async update(change: Init<ProtoSession>): Promise<ProtoSession> {
    const request = { session: { ...change, sessionId: this.id }, requestId: randomUUID() as string };
    const { session } = await this.rpc.unary(SESSIONS, SESSIONS.methods.updateSession, request);
    return session as ProtoSession;
  }

  /** Deletes it with all it holds. */
  async delete(): Promise<void> {
    const request = { sessionId: this.id, requestId: randomUUID() as string };
    await this.rpc.unary(SESSIONS, SESSIONS.methods.deleteSession, request);
  }

  /** For a host that calls the model itself: the next prompt, made to fit, as its vendor's SDK takes it. */
  async prepare(options: { format: Format; model?: string; applyQueuedMessages?: boolean }): Promise<Prepared> {
    const request = { sessionId: this.id, requestId: randomUUID() as string, ...options };
    const { prompt } = await this.rpc.unary(CONTEXTS, CONTEXTS.methods.prepareContext, request);
    // A prompt above 2 MiB is a blob.
    const blob = prompt?.requestBlob;
    const body = blob ? (await this.blob(blob.blobId)).toString() : prompt?.requestJson;
    return {
      request: body ? JSON.parse(body) : prompt,
      contextVersion: prompt?.contextVersion ?? 0,
      tokens: prompt?.tokens?.tokens ?? 0,
    };
  }

  /** Stores messages in a vendor's format (`messages`, `input` or `contents`): a user's, the model's answer, or results. */
  async record(
    messages: readonly unknown[],
    options: {
      format: Exclude<Format, "native">;
      model?: string;
      usage?: Init<Usage>;
      prepared?: Prepared;
      requestId?: string;
    },
  ): Promise<AppendMessagesResponse> {
    const { format: messagesFormat, model, usage, prepared, requestId = randomUUID() } = options;
    const contextVersion = prepared?.contextVersion;
    const request = {
      sessionId: this.id,
      requestId,
      messagesJson: JSON.stringify(messages),
      messagesFormat,
      messagesModel: model,
      contextVersion,
    };
    const appended = await this.rpc.unary(SESSIONS, SESSIONS.methods.appendMessages, request);
    if (usage) {
      const report = {
        sessionId: this.id,
        requestId: `${requestId}-usage`,
        model,
        usage,
        messageId: appended.messageIds[0],
        contextVersion,
      };
      await this.rpc.unary(CONTEXTS, CONTEXTS.methods.recordUsage, report);
    }
    return appended;
  }

  private async blob(blobId: string): Promise<Buffer> {
    for (let attempt = 1; ; attempt++) {
      try {
        const pieces: Uint8Array[] = [];
        for await (const { data } of this.rpc.stream(BLOBS, BLOBS.methods.getBlob, { blobId }, { idle: 20_000 }))
          if (data?.$case === "chunk") pieces.push(data.value);
        return Buffer.concat(pieces);
      } catch (error) {
        if (attempt === 5 || !asContextdError(error).transient) throw error;
        await sleep(delay(attempt, Math.random()));
      }
    }
  }

  private execute(what: { input?: Init<InputMessage>; continueTranscript?: boolean }, options: RunOptions): Run {
    const { requestId = randomUUID(), after = 0, model, limits, generation, busy } = options;
    const tools = options.tools && { hostTools: [...byName(options.tools).values()].map((tool) => tool.definition) };
    const request = { sessionId: this.id, requestId, ...what, tools, model, limits, generation, busyPolicy: busy };
    const open: RunSetup["open"] = (afterSeq, signal) =>
      watched(
        (it) =>
          this.rpc.stream(TURNS, TURNS.methods.executeTurn, { ...request, afterSeq, stream: STREAM } as never, it),
        signal,
      );
    return this.follow({ requestId, after }, open, options);
  }

  private follow(machine: RunSetup["machine"], open: RunSetup["open"], options: RunOptions): Run {
    const tools = options.tools ? byName(options.tools) : this.tools;
    const lastText = async (messageId: string) => {
      for await (const it of this.messages({ newestFirst: true }))
        if (it.messageId === messageId) return textOf(it.parts);
      return "";
    };
    const { approve, signal } = options;
    return new Run({ rpc: this.rpc, sessionId: this.id, tools, machine, open, lastText, approve, signal });
  }
}

async function* watching(run: Run, signal?: AbortSignal): AsyncGenerator<RunEvent> {
  try {
    yield* run;
  } catch (error) {
    if (!signal?.aborted) throw error;
  } finally {
    run.detach();
  }
}

function message(input: Input): Init<InputMessage> {
  return typeof input === "string" ? { parts: [{ content: { $case: "text", value: input } }] } : input;
}
