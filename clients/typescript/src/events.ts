/** The events of a session as one discriminated union, named as in the protos. */
import type { Event } from "./gen/index.js";

type Payload = NonNullable<Event["payload"]>;
type Snake<S extends string> = S extends `${infer A}${infer B}`
  ? `${A extends Lowercase<A> ? A : `_${Lowercase<A>}`}${Snake<B>}`
  : S;

/** Where and when something happened. */
export interface EventPlace {
  /** Position in the session; 0 for what is for live displays only. */
  seq: number;
  sessionId: string;
  /** Empty when it belongs to no turn. */
  turnId: string;
  /** From 1; 0 outside of steps. */
  step: number;
  attempt: number;
  time: Date | undefined;
  /** It happened before this stream began. */
  replay: boolean;
}

/** An event of the server: its payload, with its name as `type`. */
export type ServerEvent = {
  [P in Payload as P["$case"]]: { type: Snake<P["$case"]> } & EventPlace & P["value"];
}[Payload["$case"]];

/** Made by this client: what was yielded of this message's text and reasoning is void; what holds follows from its beginning. */
export type Discarded = { type: "discarded"; text: string; reasoning: string } & EventPlace;

/** Made by this client: the stream broke and is being opened again. */
export type Reconnecting = { type: "reconnecting"; attempt: number; delay: number; reason: string };

/**
 * What a run yields. `text_delta`, `reasoning_delta` and `tool_input_delta` carry what was not yielded before: to
 * print every `text` is to print every word once.
 */
export type RunEvent = ServerEvent | Discarded | Reconnecting;

/** Where an event belongs. */
export function place(event: Event): EventPlace {
  const { seq, sessionId, turnId, step, attempt, time, replay } = event;
  return { seq, sessionId, turnId, step, attempt, time, replay };
}

/** An event as a plain object; undefined for a kind that is newer than this client. */
export function plain(event: Event): ServerEvent | undefined {
  if (!event.payload) return undefined;
  const type = event.payload.$case.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return { ...event.payload.value, ...place(event), type } as ServerEvent;
}
