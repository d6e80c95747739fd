/** The entrance: a connection, and the sessions. */
import { randomUUID } from "node:crypto";
import { asContextdError } from "./errors.js";
import { type Model, ModelServiceDefinition, Session as ProtoSession, SessionServiceDefinition } from "./gen/index.js";
import { type ContextdOptions, settle } from "./options.js";
import { type Init, Rpc } from "./rpc.js";
import { Session } from "./session.js";
import { byName, type ToolLike } from "./tools.js";

/** What a session is made with. */
export interface SessionOptions extends Omit<Init<ProtoSession>, "sessionId" | "systemPrompt" | "tools"> {
  /** Your own id for the conversation. Absent: the server chooses one. */
  id?: string;
  /** `PROVIDER/MODEL`. Default: the server's. */
  model?: string;
  /** Instructions that precede every prompt. */
  instructions?: string;
  /** Tools of its turns. */
  tools?: readonly ToolLike[];
}

/** A client of contextd. */
export class Contextd implements AsyncDisposable {
  /** Any RPC: `client.rpc.unary(TurnServiceDefinition, TurnServiceDefinition.methods.getTurn, {...})` with `@contextd/client/proto`. */
  readonly rpc: Rpc;

  constructor(options: ContextdOptions = {}) {
    this.rpc = new Rpc(settle(options));
  }

  /** Opens the session with this id, or creates it. What is given is in force afterwards, also where it existed. */
  async session(options: SessionOptions = {}): Promise<Session> {
    const { id = "", instructions, tools, ...rest } = options;
    const hostTools = [...byName(tools ?? []).values()].map((tool) => tool.definition);
    const config = ProtoSession.fromPartial({ ...rest, systemPrompt: instructions, tools: tools && { hostTools } });
    return new Session(this.rpc, await this.openOrCreate(id, config), tools);
  }

  private async openOrCreate(id: string, config: ProtoSession): Promise<string> {
    if (!id) return this.create(config);
    const session = { ...config, sessionId: id };
    const changes = ProtoSession.encode(config).finish().length > 0;
    const open = () => (changes ? this.update(session) : new Session(this.rpc, id).get());
    try {
      return (await open()).sessionId;
    } catch (error) {
      if (asContextdError(error).reason !== "SESSION_NOT_FOUND") throw error;
    }
    try {
      return await this.create(session);
    } catch (error) {
      if (asContextdError(error).reason !== "SESSION_ALREADY_EXISTS") throw error;
      return (await open()).sessionId; // Another host was faster.
    }
  }

  private async create(session: ProtoSession): Promise<string> {
    const request = { session, requestId: randomUUID() as string };
    const made = await this.rpc.unary(
      SessionServiceDefinition,
      SessionServiceDefinition.methods.createSession,
      request,
    );
    return made.session?.sessionId ?? "";
  }

  private update(session: ProtoSession): Promise<ProtoSession> {
    return new Session(this.rpc, session.sessionId).update(session);
  }

  /** Opens a session that exists; rejects with SESSION_NOT_FOUND. */
  async open(id: string, options: { tools?: readonly ToolLike[] } = {}): Promise<Session> {
    const session = new Session(this.rpc, id, options.tools);
    await session.get();
    return session;
  }

  /** The models that sessions can use. */
  async *models(): AsyncGenerator<Model> {
    let pageToken = "";
    do {
      const { listModels } = ModelServiceDefinition.methods;
      const page = await this.rpc.unary(ModelServiceDefinition, listModels, { pageToken, pageSize: 1000 });
      yield* page.models;
      pageToken = page.nextPageToken;
    } while (pageToken);
  }

  /** Closes the connection. Turns go on at the server. */
  close(): void {
    this.rpc.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
