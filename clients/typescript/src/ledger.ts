/** The calls that this process has begun. None is begun twice, whichever run asks for it. */
import type { ToolResult } from "./gen/index.js";
import { textPart } from "./parts.js";

/** A result on its way to the server. */
export type Result = Partial<ToolResult> & { callId: string };

interface Begun {
  result: Promise<Result>;
  abort: AbortController;
  done: boolean;
}

/** Calls that are remembered; the oldest that do not run make room. */
const REMEMBERED = 10_000;

/** Calls by session and id. Of one that is closed only the key is kept. */
export class Ledger {
  private readonly calls = new Map<string, Begun | undefined>();

  /** The result of a call: of the one that runs or ran already, else of a new one. `start` does not reject. */
  run(sessionId: string, callId: string, start: (abort: AbortController) => Promise<Result>): Promise<Result> {
    const key = keyOf(sessionId, callId);
    const known = this.calls.get(key);
    if (known) return known.result;
    if (this.calls.has(key)) return Promise.resolve(gone(callId));
    const abort = new AbortController();
    const begun: Begun = { abort, done: false, result: start(abort).finally(() => (begun.done = true)) };
    this.calls.set(key, begun);
    this.forget();
    return begun.result;
  }

  /** The server has a result of this call, or wants none: a tool that runs is aborted, and its result not kept. */
  close(sessionId: string, callId: string): void {
    const key = keyOf(sessionId, callId);
    const begun = this.calls.get(key);
    if (!begun) return;
    this.calls.set(key, undefined);
    if (!begun.done) begun.abort.abort();
  }

  /** Aborts the tools that run. */
  abort(): void {
    for (const begun of this.calls.values()) if (begun && !begun.done) begun.abort.abort();
  }

  private forget(): void {
    for (const [key, begun] of this.calls) {
      if (this.calls.size <= REMEMBERED) return;
      if (!begun || begun.done) this.calls.delete(key);
    }
  }
}

function keyOf(sessionId: string, callId: string): string {
  return `${sessionId} ${callId}`;
}

/** A call that is asked for again after its result was taken: the database lost it. It is not run a second time. */
function gone(callId: string): Result {
  const text = "The call ran, and its result was lost by the server. It was not run again.";
  return { callId, outcome: "error", parts: [textPart(text)] };
}
