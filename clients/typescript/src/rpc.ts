/** Typed calls over grpc-js: one function for unary calls, one for streams. */

import type { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import {
  type ChannelOptions,
  Client,
  type ClientReadableStream,
  connectivityState,
  credentials,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { delay } from "./backoff.js";
import { asContextdError, ContextdError, fromService } from "./errors.js";
import { shared } from "./gen/service-config.js";
import { Ledger } from "./ledger.js";
import type { Settings } from "./options.js";
import { CONTACT, PROBE, unreachable } from "./probe.js";

interface Codec<T> {
  encode(message: T, writer?: BinaryWriter): BinaryWriter;
  decode(input: BinaryReader | Uint8Array, length?: number): T;
  // biome-ignore lint/suspicious/noExplicitAny: ts-proto's own type of partial messages is not exported
  fromPartial(object: any): T;
}

/** A method of a generated service. */
export interface Method<Req, Res> {
  readonly name: string;
  readonly requestType: Codec<Req>;
  readonly responseType: Codec<Res>;
}

/** Some fields of a message, at any depth. */
export type Init<T> = T extends Date | Uint8Array
  ? T
  : T extends (infer U)[]
    ? Init<U>[]
    : T extends { $case: string }
      ? T
      : T extends object
        ? { [K in keyof T]?: Init<T[K]> }
        : T;

/** Milliseconds between two looks at a channel that connects. */
const CONTACT_POLL = 10;

const CHANNEL: ChannelOptions = {
  "grpc.service_config": JSON.stringify(shared.serviceConfig),
  "grpc.keepalive_time_ms": shared.keepalive.timeMs,
  "grpc.keepalive_timeout_ms": shared.keepalive.timeoutMs,
  "grpc.initial_reconnect_backoff_ms": shared.reconnect.initialBackoffMs,
  "grpc.max_reconnect_backoff_ms": shared.reconnect.maxBackoffMs,
  "grpc.max_receive_message_length": 16 * 1024 * 1024,
  "grpc.max_send_message_length": 64 * 1024 * 1024,
};

/** Options of one unary call. */
export interface CallOptions {
  signal?: AbortSignal;
  /** Milliseconds. */
  timeout?: number;
}

/** The connections to one or several replicas: a channel for each host, which take turns. */
export class Rpc {
  /** @internal */
  readonly ledger = new Ledger();
  private readonly channels: Client[];
  private next: number;
  /** The first connection came about. */
  private reached = false;
  /** The server does not answer, which was logged. */
  private outage = false;

  constructor(readonly settings: Settings) {
    const { tls, targets } = settings;
    const creds = tls
      ? credentials.createSsl(tls.ca ?? null, tls.key ?? null, tls.cert ?? null)
      : credentials.createInsecure();
    this.channels = targets.map((target) => new Client(target, creds, CHANNEL));
    this.next = Math.floor(Math.random() * targets.length);
  }

  private pick(): Client {
    this.next = (this.next + 1) % this.channels.length;
    return this.channels[this.next] as Client;
  }

  /**
   * Calls, and repeats what did not reach the server until its patience ends: callers make sure that a
   * repetition does nothing twice.
   */
  async unary<Req, Res>(
    service: { fullName: string },
    method: Method<Req, Res>,
    request: Init<Req>,
    options: CallOptions = {},
  ): Promise<Res> {
    const until = Date.now() + this.settings.patience;
    await this.contact(options.signal);
    for (let attempt = 1; ; attempt++) {
      try {
        const response = await this.once(service, method, request, options);
        this.answered();
        return response;
      } catch (thrown) {
        const error = asContextdError(thrown);
        const limited = error.reason === "RATE_LIMITED";
        if (!error.transient || limited || options.signal?.aborted || Date.now() > until) throw error;
        this.failed(error, until - Date.now());
        await sleep(delay(attempt, Math.random(), error.retryAfter), options.signal);
      }
    }
  }

  /** Waits for the first connection of this client; a server that was reached once is waited for by each call. */
  private async contact(signal?: AbortSignal): Promise<void> {
    const ends = Date.now() + Math.min(CONTACT - PROBE, this.settings.patience);
    while (!this.reached) {
      this.reached = this.channels.some((it) => it.getChannel().getConnectivityState(true) === connectivityState.READY);
      if (this.reached || signal?.aborted) return;
      if (Date.now() > ends) {
        const error = await unreachable(this.settings);
        if (error) throw error;
        this.reached = true; // It is there, and slow.
        return;
      }
      await sleep(CONTACT_POLL, signal);
    }
  }

  /** A call or a stream failed in passing: the first failure of an outage is logged. @internal */
  failed(error: ContextdError, left = this.settings.patience): void {
    if (this.outage || !error.transient || error.reason === "RATE_LIMITED") return;
    this.outage = true;
    const { url, log } = this.settings;
    log.warn(
      `contextd at ${url} does not answer (${error.message}); trying again for up to ${Math.round(left / 1000)} s`,
    );
  }

  /** The server answered. @internal */
  answered(): void {
    if (!this.outage) return;
    this.outage = false;
    this.settings.log.info(`contextd at ${this.settings.url} answers again`);
  }

  private once<Req, Res>(
    service: { fullName: string },
    method: Method<Req, Res>,
    request: Init<Req>,
    options: CallOptions,
  ): Promise<Res> {
    return new Promise((resolve, reject) => {
      const deadline = Date.now() + (options.timeout ?? this.settings.timeout);
      const call = this.pick().makeUnaryRequest(
        `/${service.fullName}/${method.name}`,
        (message: Req) => Buffer.from(method.requestType.encode(message).finish()),
        (bytes) => method.responseType.decode(bytes),
        method.requestType.fromPartial(request),
        this.metadata(),
        { deadline },
        (error, response) => {
          options.signal?.removeEventListener("abort", abort);
          if (error) reject(options.signal?.aborted ? aborted(options.signal) : fromService(error));
          else resolve(response as Res);
        },
      );
      const abort = () => call.cancel();
      options.signal?.addEventListener("abort", abort, { once: true });
      if (options.signal?.aborted) abort();
    });
  }

  /** Opens a stream. It throws a ContextdError where it ends with anything but OK. */
  async *stream<Req, Res>(
    service: { fullName: string },
    method: Method<Req, Res>,
    request: Init<Req>,
    options: { signal?: AbortSignal; idle?: number } = {},
  ): AsyncGenerator<Res> {
    await this.contact(options.signal);
    const call: ClientReadableStream<Res> = this.pick().makeServerStreamRequest(
      `/${service.fullName}/${method.name}`,
      (message: Req) => Buffer.from(method.requestType.encode(message).finish()),
      (bytes) => method.responseType.decode(bytes),
      method.requestType.fromPartial(request),
      this.metadata(),
    );
    const silence = new ContextdError({
      code: status.UNAVAILABLE,
      reason: "SILENT",
      message: "nothing came for too long",
    });
    let watchdog: NodeJS.Timeout | undefined;
    const watch = () => {
      if (options.idle) watchdog = setTimeout(() => call.destroy(silence), options.idle);
    };
    const abort = () => call.cancel();
    options.signal?.addEventListener("abort", abort, { once: true });
    if (options.signal?.aborted) abort();
    try {
      watch();
      for await (const message of call) {
        this.answered();
        clearTimeout(watchdog); // The reader may take its time.
        yield message as Res;
        watch();
      }
    } catch (error) {
      throw error instanceof ContextdError ? error : fromService(error as ServiceError);
    } finally {
      clearTimeout(watchdog);
      options.signal?.removeEventListener("abort", abort);
      call.on("error", () => {});
      call.cancel();
    }
  }

  /** Closes the connections. Tools that run are aborted. */
  close(): void {
    this.ledger.abort();
    for (const channel of this.channels) channel.close();
  }

  private metadata(): Metadata {
    const metadata = new Metadata();
    if (this.settings.apiKey) metadata.set("authorization", `Bearer ${this.settings.apiKey}`);
    return metadata;
  }
}

function aborted(signal: AbortSignal): ContextdError {
  return new ContextdError({
    code: status.CANCELLED,
    reason: "ABORTED_BY_CALLER",
    message: "aborted",
    fromServer: true,
    cause: signal.reason,
  });
}

/** Waits; a signal ends the wait. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done, { once: true });
  });
}
