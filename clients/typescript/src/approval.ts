/** What a host's answer about a call means. Only an explicit yes lets the call run. */

/** What `approve` decides about a call: whether it may run, with other arguments perhaps; or why not. */
export type Decision = boolean | { arguments: unknown } | { deny: string };

/** The reason that the model reads where the host gave no usable answer. Details are for the host's log. */
export const NOT_DECIDED = "The host did not approve this call: its approval callback failed.";

/** A decision that is known to be one. */
export type Verdict = { run: true; arguments?: unknown } | { run: false; reason: string };

/**
 * The decision: `true` and `{ arguments: {...} }` let the call run, `false` and `{ deny: "why" }` deny it. Throws a
 * TypeError for every other answer; the caller denies the call.
 */
export function verdictOf(answer: unknown): Verdict {
  if (answer === true) return { run: true };
  if (answer === false) return { run: false, reason: "" };
  const keys = isPlain(answer) ? Object.keys(answer) : [];
  if (isPlain(answer) && keys.length === 1) {
    if (keys[0] === "deny" && typeof answer.deny === "string") return { run: false, reason: answer.deny };
    if (keys[0] === "arguments" && isPlain(answer.arguments)) {
      JSON.stringify(answer.arguments); // throws what cannot be sent
      return { run: true, arguments: answer.arguments };
    }
  }
  const kind = Array.isArray(answer)
    ? "an array"
    : isPlain(answer)
      ? `an object with ${keys.length ? keys.join(", ") : "no fields"}`
      : `a value of type ${answer === null ? "null" : typeof answer}`;
  throw new TypeError(
    `approve returned ${kind}; only true and { arguments: {...} } let the call run, false and { deny: "why" } deny it`,
  );
}

function isPlain(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
