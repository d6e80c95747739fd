/** The core of a turn, without a server. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Action, ContextdError, Machine } from "contextd";
import { Event, Message } from "contextd/proto";

const part = (text: string) => ({ content: { $case: "text" as const, value: text } });
const event = (seq: number, $case: string, value: object, more: object = {}) =>
  Event.fromPartial({ seq, sessionId: "s", turnId: "t", payload: { $case, value } as never, ...more });
const admitted = (admission = "started", more: object = {}) => event(0, "admitted", { admission, ...more });
const delta = (messageId: string, byteOffset: number, text: string) =>
  event(0, "textDelta", { messageId, byteOffset, text });
const committed = (seq: number, messageId: string, text: string) =>
  event(seq, "messageCommitted", {
    message: Message.fromPartial({ messageId, role: "assistant", parts: [part(text)] as never }),
  });
const pending = (callId: string) => ({
  call: { callId, toolName: "look", argumentsJson: "{}" },
  executor: "host" as const,
});
const completed = (seq: number) => event(seq, "turnCompleted", { reason: "stop", result: { finalMessageId: "m" } });
const machine = () => new Machine({ requestId: "r", random: () => 1, patience: 1_000 });
const lost = () => new ContextdError({ code: 14, reason: "DRAINING", message: "", fromServer: true });

function words(actions: Action[]): string {
  return actions
    .map((it) =>
      it.do !== "yield"
        ? ""
        : it.event.type === "text_delta"
          ? it.event.text
          : it.event.type === "discarded"
            ? "|"
            : "",
    )
    .join("");
}
const feed = (it: Machine, ...events: Event[]) => events.flatMap((one) => it.event(one));
const doing = (actions: Action[], what: Action["do"]) => actions.filter((it) => it.do === what);

test("text is yielded once when a sync repeats it", () => {
  const sync = event(0, "sync", { openMessage: { messageId: "m", parts: [part("Grüße")] } });
  const actions = feed(
    machine(),
    admitted(),
    delta("m", 0, "Grü"),
    sync,
    delta("m", 7, " an alle"),
    committed(2, "m", "Grüße an alle!"),
  );
  assert.equal(words(actions), "Grüße an alle!");
});

test("an answer that is repeated goes on where it stood", () => {
  const actions = feed(
    machine(),
    admitted(),
    delta("a", 0, "one two"),
    delta("b", 0, "one "),
    delta("b", 4, "two three"),
  );
  assert.equal(words(actions), "one two three");
});

test("an answer that is repeated in other words discards the first", () => {
  const actions = feed(machine(), admitted(), delta("a", 0, "one two"), delta("b", 0, "one "), delta("b", 4, "five"));
  assert.equal(words(actions), "one two|one five");
});

test("a durable event is handled once", () => {
  const it = machine();
  feed(it, admitted(), committed(2, "m", "x"));
  assert.deepEqual(it.event(committed(2, "m", "x")), []);
  assert.equal(it.after, 2);
});

test("a call runs once, whether it comes live or with a sync", () => {
  const it = machine();
  const sync = event(0, "sync", { pendingCalls: [pending("c"), pending("d")] });
  const actions = feed(it, admitted(), event(2, "toolCallRequested", pending("c")), sync, sync);
  assert.equal(doing(actions, "execute").length, 2);
});

test("a replayed request of a call runs nothing", () => {
  const actions = feed(machine(), admitted("attached"), event(2, "toolCallRequested", pending("c"), { replay: true }));
  assert.equal(doing(actions, "execute").length, 0);
});

test("calls of a turn that runs before a queued input are left to its own host", () => {
  const it = machine();
  const actions = feed(it, admitted("queued", { queuedMessageId: "q" }), event(2, "toolCallRequested", pending("c")));
  assert.equal(doing(actions, "execute").length, 0);
  const own = { turnId: "u" };
  const later = feed(
    it,
    event(3, "turnStarted", { requestId: "r" }, own),
    event(4, "toolCallRequested", pending("e"), own),
  );
  assert.equal(doing(later, "execute").length, 1);
});

test("a lost stream is opened again after the last event that was handled", () => {
  const it = machine();
  feed(it, admitted(), committed(7, "m", "x"));
  const [open] = doing(it.ended(0, lost()), "open");
  assert.deepEqual(open, { do: "open", after: 7, delay: 50 });
});

test("without a server for longer than its patience a run fails", () => {
  const it = machine();
  it.ended(0, lost());
  assert.equal(doing(it.ended(999, lost()), "open").length, 1);
  assert.equal(doing(it.ended(1_001, lost()), "fail").length, 1);
});

test("a result is submitted until it is taken", () => {
  const it = machine();
  feed(it, admitted(), event(2, "toolCallRequested", pending("c")));
  assert.equal(doing(it.answer({ result: { callId: "c", parts: [] } }), "submit").length, 1);
  assert.equal(doing(it.submitted("c", lost()), "submit").length, 1);
  assert.deepEqual(it.submitted("c", { callId: "c", status: "accepted" }), []);
  assert.deepEqual(it.submitted("c", lost()), []);
});

test("the tool of a call that is closed elsewhere is not needed, and its result not submitted again", () => {
  const it = machine();
  feed(it, admitted(), event(2, "toolCallRequested", pending("c")));
  it.answer({ result: { callId: "c", parts: [] } });
  assert.equal(doing(feed(it, event(3, "toolCallCancelled", { callId: "c" })), "close").length, 1);
  assert.deepEqual(it.submitted("c", lost()), []);
});

test("the end of the stream ends the run with the last terminal event", () => {
  const it = machine();
  feed(it, admitted(), committed(2, "m", "Bye"), completed(3));
  const [finish] = it.ended(0);
  assert.ok(finish?.do === "finish");
  assert.equal(finish.ending.text, "Bye");
  assert.equal(finish.ending.reason, "stop");
});
