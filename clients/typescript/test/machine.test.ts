/** The core of a turn, without a server. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Action, ContextdError, InputNotTakenError, Machine } from "@contextd/client";
import { Event, Message } from "@contextd/client/proto";

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
const refusal = (reason: string, code: number, metadata = {}) =>
  new ContextdError({ code, reason, message: "", metadata, fromServer: true });
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
  const own = event(1, "turnStarted", { requestId: "r" }, { replay: true });
  const replayed = event(2, "toolCallRequested", pending("c"), { replay: true });
  assert.equal(doing(feed(machine(), admitted("attached"), own, replayed), "execute").length, 0);
});

test("a turn that a repeated request finds is this host's only if the request started it", () => {
  const sync = event(0, "sync", { pendingCalls: [pending("c")] });
  const call = event(2, "toolCallRequested", pending("d"));
  const started = (requestId: string) => event(1, "turnStarted", { requestId }, { replay: true });
  const theirs = feed(machine(), admitted("attached"), started("another"), sync, call);
  assert.equal(doing(theirs, "execute").length, 0);
  const own = feed(machine(), admitted("attached"), started("r"), sync, call);
  assert.equal(doing(own, "execute").length, 2);
});

test("a request that goes on elsewhere is followed from its beginning and yields what is new", () => {
  const it = new Machine({ requestId: "r", after: 3 });
  assert.deepEqual(it.start(), [{ do: "open", after: 0, delay: 0 }]);
  const actions = feed(
    it,
    admitted("attached"),
    event(1, "turnStarted", { requestId: "r" }, { replay: true }),
    committed(3, "m", "Seen. "),
  );
  assert.equal(it.after, 3);
  const more = feed(it, committed(4, "n", "New."), event(0, "sync", { pendingCalls: [pending("c")] }));
  assert.equal(words(actions) + words(more), "New.");
  assert.equal(doing(more, "execute").length, 1);
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
  assert.equal(doing(it.submitted("result c", lost()), "submit").length, 1);
  assert.deepEqual(it.submitted("result c", { callId: "c", status: "accepted" }), []);
  assert.deepEqual(it.submitted("result c", lost()), []);
});

test("a result that was taken, and that the database lost, is submitted anew and the call not run", () => {
  const it = machine();
  const sync = event(0, "sync", { pendingCalls: [pending("c")] });
  feed(it, admitted(), event(2, "toolCallRequested", pending("c")));
  it.answer({ result: { callId: "c", parts: [] } });
  assert.equal(doing(feed(it, sync), "submit").length, 0, "it is on its way");
  it.submitted("result c", { callId: "c", status: "accepted" });
  const actions = feed(it, sync);
  assert.deepEqual([doing(actions, "submit").length, doing(actions, "execute").length], [1, 0]);
});

test("a result that is refused becomes an error for the model, once", () => {
  const it = machine();
  feed(it, admitted(), event(2, "toolCallRequested", pending("c")));
  it.answer({ result: { callId: "c", parts: [] } });
  const [again] = doing(it.submitted("result c", refusal("INVALID_REQUEST", 3)), "submit");
  assert.ok(again?.do === "submit" && "result" in again.answer && again.answer.result.outcome === "error");
  assert.equal(doing(it.submitted("result c", refusal("INVALID_REQUEST", 3)), "fail").length, 1);
});

test("the decision about a call and its result are two answers", () => {
  const it = machine();
  feed(it, admitted(), event(2, "approvalRequested", pending("c")));
  const approval = { callId: "c", decision: "approve" as const, editedArgumentsJson: "", reason: "" };
  assert.equal(doing(it.answer({ approval }), "submit").length, 1);
  feed(it, event(3, "toolCallRequested", pending("c")));
  it.answer({ result: { callId: "c", parts: [] } });
  // The receipt of the decision comes late, and says nothing about the result.
  assert.deepEqual(it.submitted("approval c", { callId: "c", status: "accepted" }), []);
  const [again] = doing(it.submitted("result c", lost()), "submit");
  assert.ok(again?.do === "submit" && "result" in again.answer);
});

test("the tool of a call that is closed elsewhere is not needed, and its result not submitted again", () => {
  const it = machine();
  feed(it, admitted(), event(2, "toolCallRequested", pending("c")));
  it.answer({ result: { callId: "c", parts: [] } });
  assert.equal(doing(feed(it, event(3, "toolCallCancelled", { callId: "c" })), "close").length, 1);
  assert.deepEqual(it.submitted("result c", lost()), []);
});

test("the end of the stream ends the run with the last terminal event", () => {
  const it = machine();
  feed(it, admitted(), committed(2, "m", "Bye"), completed(3));
  const [finish] = it.ended(0);
  assert.ok(finish?.do === "finish");
  assert.equal(finish.ending.text, "Bye");
  assert.equal(finish.ending.reason, "stop");
});

test("events that retention removed are passed over", () => {
  const it = machine();
  feed(it, admitted(), committed(7, "m", "x"));
  const [open] = doing(it.ended(0, refusal("EVENTS_EXPIRED", 11, { oldest_seq: "41" })), "open");
  assert.deepEqual(open, { do: "open", after: 40, delay: 50 });
});

for (const reason of ["EVENTS_LOST", "CURSOR_AHEAD"]) {
  test(`after ${reason} the turn is told again without its words twice, and a session is not followed further`, () => {
    const it = machine();
    const before = feed(it, admitted(), committed(7, "m", "Hello."), completed(8));
    const [open] = doing(it.ended(0, refusal(reason, 15)), "open");
    assert.deepEqual(open, { do: "open", after: 0, delay: 50 });
    const after = feed(it, admitted("attached"), committed(7, "m", "Hello."));
    assert.equal(words(before) + words(after), "Hello.");
    assert.equal(doing(it.ended(0), "finish").length, 0, "its end was lost too");
    const watch = new Machine({ requestId: "", session: true });
    assert.equal(doing(watch.ended(0, refusal(reason, 15)), "fail").length, 1);
  });
}

test("a stream that ends in good order before its turn is opened again", () => {
  const it = machine();
  feed(it, admitted(), committed(7, "m", "x"));
  assert.deepEqual(doing(it.ended(0), "open"), [{ do: "open", after: 7, delay: 50 }]);
});

test("the end of an earlier turn is not the end", () => {
  const it = machine();
  const theirs = event(3, "turnCompleted", { reason: "stop" }, { turnId: "other" });
  feed(it, admitted("queued", { queuedMessageId: "q" }), theirs);
  assert.equal(doing(it.ended(0), "finish").length, 0);
  feed(it, event(4, "turnStarted", { requestId: "r" }), completed(5));
  const [finish] = it.ended(0);
  assert.ok(finish?.do === "finish" && finish.ending.turnId === "t");
});

test("an input that no turn takes is an error that says why", () => {
  const outcomes = [
    ["queuedMessageCancelled", "cancelled", {}],
    ["queuedMessageExpired", "expired", {}],
    ["queuedMessageDropped", "dropped", { reason: "turn_failed" }],
  ] as const;
  for (const [kind, outcome, more] of outcomes) {
    const it = machine();
    const own = event(4, kind, { queuedMessageId: "q", ...more }, { turnId: "" });
    feed(
      it,
      admitted("queued", { queuedMessageId: "q" }),
      event(3, kind, { queuedMessageId: "p" }, { turnId: "" }),
      own,
    );
    const [fail] = it.ended(0);
    assert.ok(fail?.do === "fail" && fail.error instanceof InputNotTakenError);
    assert.deepEqual([fail.error.queuedMessageId, fail.error.outcome], ["q", outcome]);
  }
});

test("an input whose id in the queue was lost with the first answer is known by the event that ends the stream", () => {
  const it = machine();
  const none = { turnId: "" };
  const events = [
    event(0, "admitted", { admission: "attached" }, none),
    event(3, "queuedMessageCancelled", { queuedMessageId: "p" }, none),
    event(4, "turnCompleted", { reason: "stop" }, { turnId: "other" }),
    event(5, "queuedMessageExpired", { queuedMessageId: "q" }, none),
  ];
  feed(it, ...events);
  const [fail] = it.ended(0);
  assert.ok(fail?.do === "fail" && fail.error instanceof InputNotTakenError && fail.error.queuedMessageId === "q");
});

test("errors that only a broken connection explains are believed when they do not end", () => {
  const it = machine();
  const broken = () => new ContextdError({ code: 13, reason: "INTERNAL", message: "RST_STREAM" });
  for (let at = 0; at < 20; at++) assert.equal(doing(it.ended(0, broken()), "open").length, 1);
  assert.equal(doing(it.ended(0, broken()), "fail").length, 1);
});

test("a limit of the tenant is waited for", () => {
  const it = machine();
  for (let at = 0; at < 60; at++) assert.equal(doing(it.ended(0, refusal("RATE_LIMITED", 8)), "open").length, 1);
  assert.equal(doing(it.ended(0, refusal("RATE_LIMITED", 8)), "fail").length, 1);
});
