/** A contextd with scripted models on a PostgreSQL of its own, and a proxy that cuts. */
import { type ChildProcess, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A model that makes three steps with tools and says all words at the end. */
export const WORDS = Array.from({ length: 24 }, (_, index) => `word${index}`).join(" ");
const call = (name: string, at: number) => ({ tool_call: { name, arguments: { at } } });
const SCRIPTS = {
  steps: {
    context_window: 16000,
    steps: [
      { when: { call: 0 }, say: [{ text: "first things first ", delay_ms: 20 }, call("look", 0), call("list", 0)] },
      { when: { call: 1 }, say: [{ text: "then the second ", delay_ms: 20 }, call("look", 1), call("list", 1)] },
      { when: { call: 2 }, say: [{ text: "and a third ", delay_ms: 20 }, call("look", 2), call("list", 2)] },
      { say: [{ text: WORDS, delay_ms: 20 }] },
    ],
  },
  once: {
    steps: [
      { when: { has_result_of: "look" }, say: [{ text: "It says: {{result:look}}" }] },
      {
        when: { offers: "look" },
        say: [{ text: "Let me look." }, { tool_call: { name: "look", arguments: { at: 7 } } }],
      },
      { when: { otherwise: true }, say: [{ reasoning: "Hm." }, { text: "You said: {{user}}" }] },
    ],
  },
  coder: {
    context_window: 16000,
    steps: [
      { when: { offers: "read", call: 9 }, say: [{ text: "I have read enough." }] },
      {
        when: { offers: "read" },
        say: [{ text: "I go on reading. " }, { tool_call: { name: "read", arguments: { path: "big.txt" } } }],
      },
      { say: [{ text: "A summary of what was read." }] },
    ],
  },
  shell: {
    steps: [
      {
        when: { call: 0 },
        say: [
          { tool_call: { name: "bash", arguments: { command: "echo before; echo wrong >&2; exit 3" } } },
          { tool_call: { name: "grep", arguments: { pattern: "(" } } },
          { tool_call: { name: "read", arguments: { path: "../outside.txt" } } },
        ],
      },
      { when: { call: 1 }, say: [{ tool_call: { name: "grep", arguments: { pattern: "nowhere" } } }] },
      { say: [{ text: "bash {{result:bash}} read {{result:read}} grep {{result:grep}}" }] },
    ],
  },
  mail: {
    steps: [
      { when: { user_contains: "kettle" }, say: [{ text: '{"sender": "Anna Berg", "thing": "Blue kettle"}' }] },
      { when: { user_contains: "Copy them" }, say: [{ text: '{"sender": "Tom Hill", "thing": "settings page"}' }] },
      { say: [{ text: '{"sender": "Ole Lund", "thing": "settings page"}' }] },
    ],
  },
  large: { context_window: 4_000_000, steps: [{ say: [{ text: "Much." }] }] },
  fails: { steps: [{ say: [{ error: { kind: "bad_request", message: "no" } }] }] },
  slow: { steps: [{ say: [{ repeat: { text: "on and on ", times: 1000 }, delay_ms: 50 }] }] },
};

export const BIN = process.env.CONTEXTD_BIN ?? "contextd";

/** What a server is started with. */
export interface ServerOptions {
  /** The default model. */
  model?: string;
  variables?: Record<string, string>;
}

/** A server that can be killed and started again on the same data and port. */
export class Server {
  private process: ChildProcess | undefined;
  private readonly place = mkdtempSync(join(tmpdir(), "contextd-ts-"));
  port = 0;

  private constructor(private readonly options: ServerOptions) {}

  static async start(options: ServerOptions = {}): Promise<Server> {
    const server = new Server(options);
    chmodSync(server.place, 0o755);
    mkdirSync(join(server.place, "scripts"));
    for (const [name, script] of Object.entries(SCRIPTS)) {
      writeFileSync(join(server.place, "scripts", `${name}.json`), JSON.stringify(script));
    }
    server.port = await freePort();
    await server.up();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts it, unless it runs. */
  async up(): Promise<void> {
    if (this.runs) return;
    const own = Object.entries(process.env).filter(([name]) => !/^CONTEXTD_|_API_KEY$|_BASE_URL$/.test(name));
    const env = {
      ...Object.fromEntries(own),
      CONTEXTD_LISTEN: `127.0.0.1:${this.port}`,
      CONTEXTD_DATA_DIR: join(this.place, "data"),
      CONTEXTD_SCRIPT_DIR: join(this.place, "scripts"),
      CONTEXTD_DEFAULT_MODEL: this.options.model ?? "scripted/once",
      // Shorter, and a busy machine takes turns from replicas that live.
      CONTEXTD_LEASE_TTL: "3s",
      ...this.options.variables,
    };
    const log = openSync(join(this.place, "log"), "a");
    const child = spawn(BIN, ["serve"], { env, stdio: ["ignore", "pipe", log] });
    this.process = child;
    const ready = await new Promise<string>((resolve, reject) => {
      child.stdout?.once("data", (data) => resolve(String(data)));
      child.once("error", reject);
      child.once("exit", () =>
        reject(new Error(`contextd does not start:\n${readFileSync(join(this.place, "log"), "utf8")}`)),
      );
    });
    if (!ready.startsWith("contextd listens on ")) throw new Error(ready);
    child.removeAllListeners("exit");
  }

  /** The PostgreSQL that it runs, for other replicas on this machine. */
  databaseUrl(): string {
    const lines = readFileSync(join(this.place, "data/postgresql/postmaster.pid"), "utf8").split("\n");
    return `postgres://contextd@localhost/contextd?host=${lines[4]}`;
  }

  /** The newest lines of its log. */
  log(): string {
    return readFileSync(join(this.place, "log"), "utf8").slice(-20_000);
  }

  private get runs(): boolean {
    return this.process !== undefined && this.process.exitCode === null && this.process.signalCode === null;
  }

  /** Ends it with a signal: SIGKILL or SIGTERM. */
  async down(signal: NodeJS.Signals): Promise<void> {
    const child = this.process;
    if (!child || !this.runs) return;
    const exit = once(child, "exit");
    child.kill(signal);
    await exit;
  }

  async close(): Promise<void> {
    await this.down("SIGTERM");
    if (process.env.CONTEXTD_TEST_LOG) cpSync(join(this.place, "log"), process.env.CONTEXTD_TEST_LOG);
    rmSync(this.place, { recursive: true, force: true });
  }
}

/** Two replicas on the database of a third server, which takes no part. */
export class Fleet {
  private constructor(
    private readonly keeper: Server,
    readonly replicas: Server[],
  ) {}

  static async start(): Promise<Fleet> {
    const keeper = await Server.start();
    const variables = { CONTEXTD_DATABASE_URL: keeper.databaseUrl() };
    return new Fleet(keeper, [await Server.start({ variables }), await Server.start({ variables })]);
  }

  get url(): string {
    return this.replicas.map((it) => it.url).join(",");
  }

  logs(): string {
    return [this.keeper, ...this.replicas].map((it) => it.log()).join("\n");
  }

  async up(): Promise<void> {
    await Promise.all(this.replicas.map((it) => it.up()));
  }

  async close(): Promise<void> {
    for (const it of [...this.replicas, this.keeper]) await it.close();
  }
}

/** A TCP proxy that cuts every connection `every` milliseconds after it began. */
export async function cutting(
  port: number,
  every: number,
): Promise<{ url: string; cuts: () => number; close(): void }> {
  let cuts = 0;
  const sockets = new Set<Socket>();
  const proxy = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const it of [near, far]) {
      sockets.add(it);
      it.on("error", () => {});
      it.on("close", () => {
        near.destroy();
        far.destroy();
        sockets.delete(it);
      });
    }
    near.pipe(far).pipe(near);
    setTimeout(() => {
      if (!near.destroyed) cuts += 1;
      near.destroy();
    }, every);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const address = proxy.address();
  const at = typeof address === "object" ? address?.port : 0;
  const close = () => {
    proxy.close();
    for (const socket of sockets) socket.destroy();
  };
  return { url: `http://127.0.0.1:${at}`, cuts: () => cuts, close };
}

/** Ports that no system assigns by itself: a server that is down keeps its port to itself. */
const FIRST_PORT = 10_000;
const END_PORT = 32_000;

export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(FIRST_PORT, END_PORT);
    const server = createServer().listen(port, "127.0.0.1");
    try {
      await once(server, "listening");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
      continue;
    }
    server.close();
    await once(server, "close");
    return port;
  }
}
