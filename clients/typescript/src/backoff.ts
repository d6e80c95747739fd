/** How long to wait before the next attempt: pure. */

/** Bounds of the waiting. */
export interface Backoff {
  /** Milliseconds before the first repetition, on average. */
  first: number;
  /** Most milliseconds. */
  most: number;
}

/** Of turns and calls. */
export const BACKOFF: Backoff = { first: 50, most: 1_000 };

/** The delay before attempt `attempt` (from 1); `random` is within 0 and 1, `asked` what the server asked for. */
export function delay(attempt: number, random: number, asked?: number, bounds = BACKOFF): number {
  const grown = Math.min(bounds.most, bounds.first * 2 ** Math.min(attempt - 1, 20));
  return Math.max(asked ?? 0, grown * (0.5 + random / 2));
}
