/** The entrance: a connection, and the sessions. */
import { randomUUID } from "node:crypto";
import { asContextdError } from "./errors.js";
import {
  type Model,
  ModelServiceDefinition,
  type Session as ProtoSession,
  SessionServiceDefinition,
} from "./gen/index.js";
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
  /** Any RPC: `client.rpc.unary(TurnServiceDefinition, TurnServiceDefinition.methods.getTurn, {...})` with `contextd/proto`. */
  readonly rpc: Rpc;

  constructor(options: ContextdOptions = {}) {
    this.rpc = new Rpc(settle(options));
  }

  /** Creates a session, or opens the one with this id as it is. */
  async session(options: SessionOptions = {}): Promise<Session> {
    const { id = "", instructions, tools, ...rest } = options;
    const hostTools = [...byName(tools ?? []).values()].map((tool) => tool.definition);
    const session = { ...rest, sessionId: id, systemPrompt: instructions, tools: tools && { hostTools } };
    const { createSession } = SessionServiceDefinition.methods;
    try {
      const request = { session, requestId: randomUUID() as string };
      const made = await this.rpc.unary(SessionServiceDefinition, createSession, request as never);
      return new Session(this.rpc, made.session?.sessionId ?? "", tools);
    } catch (error) {
      if (!id || asContextdError(error).reason !== "SESSION_ALREADY_EXISTS") throw error;
      return new Session(this.rpc, id, tools);
    }
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
