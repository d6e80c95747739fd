/** What a model says, each word once: pure. */
import type { Part } from "./gen/index.js";

type Kind = "text" | "reasoning";

/** A piece that was not yielded before. */
export interface Piece {
  kind: Kind;
  messageId: string;
  partIndex: number;
  byteOffset: number;
  text: string;
}

/** What to yield: perhaps that what was yielded is void, then pieces. */
export interface Said {
  discarded?: { text: string; reasoning: string };
  pieces: Piece[];
}

interface Spoken {
  kind: Kind;
  text: string;
}

/**
 * Follows the message that is being written. A piece says where it belongs, so one that was heard before is left
 * out. When a message became void and is being repeated, nothing is yielded until it goes on where the last one
 * stood, or says something else.
 */
export class Words {
  private messageId = "";
  private heard = new Map<number, Spoken>();
  private shown = new Map<number, Spoken>();

  /** A piece of the open message. */
  delta(kind: Kind, messageId: string, index: number, offset: number, text: string): Said {
    this.begin(messageId);
    const part = this.heard.get(index) ?? { kind, text: "" };
    const known = Buffer.byteLength(part.text);
    if (offset > known) return { pieces: [] }; // Something was missed; the whole comes with the message.
    const fresh =
      offset === known
        ? text
        : Buffer.from(text)
            .subarray(known - offset)
            .toString();
    this.heard.set(index, { kind, text: part.text + fresh });
    return this.show(false);
  }

  /** All that the open message says so far. */
  whole(messageId: string, parts: Part[]): Said {
    this.begin(messageId);
    parts.forEach((part, index) => {
      const spoken = spokenOf(part);
      if (spoken && spoken.text.length >= (this.heard.get(index)?.text.length ?? 0)) this.heard.set(index, spoken);
    });
    return this.show(false);
  }

  /** The message is final. */
  commit(messageId: string, parts: Part[]): Said {
    this.begin(messageId);
    const heard = this.heard;
    this.heard = new Map();
    parts.forEach((part, index) => {
      const spoken = spokenOf(part);
      const known = heard.get(index);
      // A preview is the beginning of a text that is too long for an event.
      const kept = part.previewOf && known?.text.startsWith(spoken?.text ?? "") ? known : spoken;
      if (kept) this.heard.set(index, kept);
    });
    const said = this.show(true);
    this.heard = new Map();
    this.shown = new Map();
    this.messageId = "";
    return said;
  }

  /** The turn ended: what is not part of a message by now never will be. */
  end(): Said {
    const discarded = this.void();
    this.heard = new Map();
    return { ...discarded, pieces: [] };
  }

  private begin(messageId: string): void {
    if (messageId === this.messageId) return;
    this.messageId = messageId;
    this.heard = new Map();
  }

  private show(final: boolean): Said {
    const relation = compare(line(this.heard), line(this.shown));
    if (relation === "shorter" && !final) return { pieces: [] };
    const discarded = relation === "longer" ? {} : this.void();
    const pieces: Piece[] = [];
    for (const [partIndex, { kind, text }] of line(this.heard)) {
      const before = this.shown.get(partIndex)?.text ?? "";
      if (text.length === before.length) continue;
      pieces.push({
        kind,
        messageId: this.messageId,
        partIndex,
        byteOffset: Buffer.byteLength(before),
        text: text.slice(before.length),
      });
      this.shown.set(partIndex, { kind, text });
    }
    return { ...discarded, pieces };
  }

  private void(): Pick<Said, "discarded"> {
    const of = (kind: Kind) =>
      line(this.shown)
        .filter(([, part]) => part.kind === kind)
        .map(([, part]) => part.text)
        .join("");
    const discarded = { text: of("text"), reasoning: of("reasoning") };
    this.shown = new Map();
    return discarded.text || discarded.reasoning ? { discarded } : {};
  }
}

function line(parts: Map<number, Spoken>): [number, Spoken][] {
  return [...parts].filter(([, part]) => part.text).sort(([a], [b]) => a - b);
}

/** Whether what is heard goes on after what is shown, is a beginning of it, or is something else. */
function compare(heard: [number, Spoken][], shown: [number, Spoken][]): "longer" | "shorter" | "other" {
  const begins = (short: [number, Spoken][], long: [number, Spoken][]) =>
    short.every(([index, part], at) => {
      const other = long[at];
      if (!other || other[0] !== index || other[1].kind !== part.kind) return false;
      const last = at === short.length - 1;
      return last ? other[1].text.startsWith(part.text) : other[1].text === part.text;
    });
  if (begins(shown, heard)) return "longer";
  return begins(heard, shown) ? "shorter" : "other";
}

function spokenOf(part: Part): Spoken | undefined {
  switch (part.content?.$case) {
    case "text":
    case "refusal":
      return { kind: "text", text: part.content.value };
    case "reasoning":
      return { kind: "reasoning", text: part.content.value.text };
    default:
      return undefined;
  }
}
