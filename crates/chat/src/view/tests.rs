//! Tests the rendering of turns, with events as a server sends them.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test names the variants it looks for")]

use super::*;
use contextd_proto::{CompletionReason, FailureReason, Role};

const LIVE: Style = Style { live: true, colour: false };
const COLOUR: Style = Style { live: true, colour: true };
const PIPED: Style = Style { live: false, colour: false };

// --- A server
// --------------------------------------------------------------------------------------------------------

/// The events of a turn, numbered.
#[derive(Default)]
struct Told {
    events: Vec<pb::Event>,
    seq: i64,
}

impl Told {
    fn durable(mut self, payload: Payload) -> Self {
        self.seq += 1;
        self.events.push(pb::Event { seq: self.seq, payload: Some(payload), ..pb::Event::default() });
        self
    }

    fn passing(mut self, payload: Payload) -> Self {
        self.events.push(pb::Event { payload: Some(payload), ..pb::Event::default() });
        self
    }

    /// Reasoning, three characters at a time.
    fn reasons(mut self, message: &str, part: i32, text: &str) -> Self {
        for (at, piece) in pieces(text) {
            self = self.passing(Payload::ReasoningDelta(pb::ReasoningDelta {
                message_id: message.to_owned(),
                part_index: part,
                byte_offset: at,
                text: piece,
            }));
        }
        self
    }

    /// Text, three characters at a time.
    fn says(mut self, message: &str, part: i32, text: &str) -> Self {
        for (at, piece) in pieces(text) {
            self = self.passing(says(message, part, at, &piece));
        }
        self
    }

    fn commits(self, message: &str, role: Role, parts: Vec<pb::Part>) -> Self {
        let message =
            pb::Message { message_id: message.to_owned(), role: role.into(), parts, ..pb::Message::default() };
        self.durable(Payload::MessageCommitted(pb::MessageCommitted { message: Some(message) }))
    }

    fn begins(self) -> Self {
        self.passing(Payload::Admitted(pb::Admitted::default()))
            .durable(Payload::TurnStarted(pb::TurnStarted::default()))
            .commits("u", Role::User, vec![text("What is it like in Paris?")])
            .durable(Payload::StepStarted(pb::StepStarted::default()))
    }

    fn completes(self) -> Self {
        let stop = CompletionReason::Stop.into();
        self.durable(Payload::TurnCompleted(pb::TurnCompleted { reason: stop, ..pb::TurnCompleted::default() }))
    }

    fn retries(self, voided: &str) -> Self {
        let failure = pb::Failure { message: "the provider is overloaded".to_owned(), ..pb::Failure::default() };
        self.durable(Payload::TurnRetrying(pb::TurnRetrying {
            failure: Some(failure),
            next_attempt: 2,
            voided_message_id: voided.to_owned(),
            ..pb::TurnRetrying::default()
        }))
    }
}

fn pieces(text: &str) -> Vec<(i32, String)> {
    let mut at = 0;
    let chars: Vec<char> = text.chars().collect();
    let piece = |chars: &[char]| {
        let piece: String = chars.iter().collect();
        let here = at;
        at += i32::try_from(piece.len()).unwrap();
        (here, piece)
    };
    chars.chunks(3).map(piece).collect()
}

fn says(message: &str, part: i32, at: i32, piece: &str) -> Payload {
    Payload::TextDelta(pb::TextDelta {
        message_id: message.to_owned(),
        part_index: part,
        byte_offset: at,
        text: piece.to_owned(),
    })
}

fn part(content: Content) -> pb::Part {
    pb::Part { content: Some(content), ..pb::Part::default() }
}

fn text(text: &str) -> pb::Part {
    part(Content::Text(text.to_owned()))
}

fn reasoning(text: &str) -> pb::Part {
    part(Content::Reasoning(pb::Reasoning { text: text.to_owned(), ..pb::Reasoning::default() }))
}

fn call(id: &str, tool: &str) -> pb::ToolCall {
    pb::ToolCall {
        call_id: id.to_owned(),
        tool_name: tool.to_owned(),
        arguments_json: "{\"city\":\"Paris\"}".to_owned(),
        arguments_blob: None,
    }
}

fn result(id: &str, tool: &str, given: &str, outcome: pb::ToolOutcome) -> pb::ToolResult {
    pb::ToolResult {
        call_id: id.to_owned(),
        tool_name: tool.to_owned(),
        parts: vec![text(given)],
        outcome: outcome.into(),
        ..pb::ToolResult::default()
    }
}

fn requested(id: &str, tool: &str) -> Payload {
    Payload::ToolCallRequested(pb::PendingCall { call: Some(call(id, tool)), ..pb::PendingCall::default() })
}

fn completed(id: &str, tool: &str, given: &str, outcome: pb::ToolOutcome) -> Payload {
    let result = Some(result(id, tool, given, outcome));
    Payload::ToolCallCompleted(pb::ToolCallCompleted { result, ..pb::ToolCallCompleted::default() })
}

/// A turn with reasoning, text, two tools and a final response.
fn two_tools() -> Vec<pb::Event> {
    let success = pb::ToolOutcome::Success;
    let calls = [part(Content::ToolCall(call("c1", "weather"))), part(Content::ToolCall(call("c2", "time")))];
    let asked = [reasoning("Two things: °C and h."), text("Let me look.")].into_iter().chain(calls).collect();
    Told::default()
        .begins()
        .reasons("m1", 0, "Two things: °C and h.")
        .says("m1", 1, "Let me look.")
        .commits("m1", Role::Assistant, asked)
        .durable(requested("c1", "weather"))
        .durable(requested("c2", "time"))
        .durable(Payload::ActionRequired(pb::ActionRequired::default()))
        .durable(completed("c1", "weather", "18 °C", success))
        .durable(completed("c2", "time", "14:05\nor so", success))
        .commits("t", Role::Tool, vec![part(Content::ToolResult(result("c1", "weather", "18 °C", success)))])
        .durable(Payload::StepStarted(pb::StepStarted::default()))
        .says("m2", 0, "It is 18 °C,\n14:05.")
        .commits("m2", Role::Assistant, vec![text("It is 18 °C,\n14:05.")])
        .completes()
        .events
}

/// A turn with a first response that becomes void; `then` is the second one.
fn retried(then: &str) -> Vec<pb::Event> {
    Told::default()
        .begins()
        .reasons("m1", 0, "Hm.")
        .says("m1", 1, "It is warm")
        .retries("m1")
        .reasons("m2", 0, "Hm.")
        .says("m2", 1, then)
        .commits("m2", Role::Assistant, vec![reasoning("Hm."), text(then)])
        .completes()
        .events
}

// --- A client
// --------------------------------------------------------------------------------------------------------

/// All output, in order.
fn printed(style: Style, events: &[pb::Event]) -> String {
    let mut view = View::new(style);
    events
        .iter()
        .flat_map(|event| view.show(event))
        .map(|out| match out {
            Output::Answer(text) | Output::Notice(text) => text,
        })
        .collect()
}

/// Output that goes to a program that reads the response.
fn answered(events: &[pb::Event]) -> String {
    let mut view = View::new(PIPED);
    let out = events.iter().flat_map(|event| view.show(event));
    out.filter_map(|out| match out {
        Output::Answer(text) => Some(text),
        Output::Notice(_) => None,
    })
    .collect()
}

/// The events that a client receives if its connection breaks before event `cut`, and it reconnects when the
/// server has sent `back` events.
fn cut_off(told: &[pb::Event], cut: usize, back: usize) -> Vec<pb::Event> {
    let cursor = told[..cut].iter().map(|event| event.seq).max().unwrap_or_default();
    let mut heard = told[..cut].to_vec();
    heard.push(pb::Event { payload: Some(Payload::Admitted(pb::Admitted::default())), ..pb::Event::default() });
    let missed = told[..back].iter().filter(|event| event.seq > cursor);
    heard.extend(missed.map(|event| pb::Event { replay: true, ..event.clone() }));
    let sync = pb::Sync { caught_up: true, open_message: open_message(&told[..back]), ..pb::Sync::default() };
    heard.push(pb::Event { payload: Some(Payload::Sync(sync)), ..pb::Event::default() });
    heard.extend_from_slice(&told[back..]);
    heard
}

/// The open message after these events.
fn open_message(told: &[pb::Event]) -> Option<pb::Message> {
    let mut open: Option<pb::Message> = None;
    for event in told {
        match event.payload.as_ref().unwrap() {
            Payload::TextDelta(d) => extend(&mut open, &d.message_id, d.part_index, &d.text, text("")),
            Payload::ReasoningDelta(d) => extend(&mut open, &d.message_id, d.part_index, &d.text, reasoning("")),
            _ if event.seq > 0 => open = None,
            _ => {}
        }
    }
    open
}

fn extend(open: &mut Option<pb::Message>, id: &str, part: i32, more: &str, empty: pb::Part) {
    let message = open.get_or_insert_with(pb::Message::default);
    id.clone_into(&mut message.message_id);
    message.set_role(Role::Assistant);
    if message.parts.len() == usize::try_from(part).unwrap() {
        message.parts.push(empty);
    }
    match message.parts.last_mut().unwrap().content.as_mut().unwrap() {
        Content::Text(text) => text.push_str(more),
        Content::Reasoning(reasoning) => reasoning.text.push_str(more),
        other => panic!("not streamed: {other:?}"),
    }
}

// --- Tests -----------------------------------------------------------------------------------------------------------

#[test]
fn a_turn_is_shown_as_it_comes() {
    let expected = "\
Two things: °C and h.
Let me look.
-> weather {\"city\":\"Paris\"}
-> time {\"city\":\"Paris\"}
<- weather: 18 °C
<- time: 14:05 or so
It is 18 °C,
14:05.
";
    assert_eq!(printed(LIVE, &two_tools()), expected);
    assert_eq!(printed(PIPED, &two_tools()), expected);
    assert_eq!(answered(&two_tools()), "Let me look.\nIt is 18 °C,\n14:05.\n");
}

#[test]
fn everything_but_the_answer_is_dimmed() {
    let shown = printed(COLOUR, &two_tools());
    for dimmed in ["Two", "-> time {\"city\":\"Paris\"}\n", "<- weather: 18 °C\n"] {
        assert!(shown.contains(&format!("{DIM}{}", dimmed.trim_end())), "{shown}");
    }
    let plain: String = shown.split(PLAIN).map(|rest| rest.split_once(DIM).map_or(rest, |(plain, _)| plain)).collect();
    assert_eq!(plain.replace('\n', ""), "Let me look.It is 18 °C,14:05.");
    assert_eq!(shown.replace(DIM, "").replace(PLAIN, ""), printed(LIVE, &two_tools()));
}

#[test]
fn output_is_complete_and_without_duplicates_wherever_the_connection_breaks() {
    let told = two_tools();
    let whole = printed(LIVE, &told);
    for cut in 0..=told.len() {
        for back in cut..=told.len() {
            let heard = cut_off(&told, cut, back);
            assert_eq!(printed(LIVE, &heard), whole, "cut before event {cut}, back after {back}");
            assert_eq!(printed(PIPED, &heard), whole, "cut before event {cut}, back after {back}");
        }
    }
}

#[test]
fn a_replayed_answer_is_printed_once_wherever_the_connection_breaks() {
    let told = retried("It is warm and sunny.");
    let words = |shown: &str| shown.lines().filter(|line| !line.starts_with('(')).collect::<String>();
    assert_eq!(printed(LIVE, &told), "Hm.\nIt is warm\n(attempt 2: the provider is overloaded)\n and sunny.\n");
    for cut in 0..=told.len() {
        for back in cut..=told.len() {
            let heard = cut_off(&told, cut, back);
            let shown = printed(LIVE, &heard);
            assert_eq!(words(&shown), "Hm.It is warm and sunny.", "cut before event {cut}, back after {back}: {shown}");
            assert_eq!(answered(&heard), "It is warm and sunny.\n");
        }
    }
}

#[test]
fn a_retried_answer_with_other_text_is_printed_from_its_beginning() {
    let line = "(attempt 2: the provider is overloaded)\n(the response was restarted)\n";
    assert_eq!(printed(LIVE, &retried("It is cold.")), format!("Hm.\nIt is warm\n{line}Hm.\nIt is cold.\n"));
    let shorter = printed(LIVE, &retried("It is"));
    assert_eq!(shorter, format!("Hm.\nIt is warm\n{line}Hm.\nIt is\n"));
    assert_eq!(answered(&retried("It is cold.")), "It is cold.\n");
}

#[test]
fn repeated_overlapping_or_missing_deltas_do_not_change_the_output() {
    let story = |pieces: &[(i32, &str)]| {
        let mut told = Told::default().begins();
        for (at, piece) in pieces {
            told = told.passing(says("m", 0, *at, piece));
        }
        told.commits("m", Role::Assistant, vec![text("one two three")]).completes().events
    };
    for pieces in [
        &[(0, "one"), (0, "one"), (3, " two"), (0, "one two three")][..],
        &[(0, "one two"), (4, "two three"), (7, " three")],
        &[(0, "one"), (7, " three")],
        &[(4, "two")],
        &[(-1, "one")],
        &[],
    ] {
        assert_eq!(printed(LIVE, &story(pieces)), "one two three\n", "{pieces:?}");
    }
}

#[test]
fn a_kept_partial_answer_is_shown_once_and_a_discarded_one_is_marked() {
    let cancelled = Payload::TurnCancelled(pb::TurnCancelled::default());
    let said = || Told::default().begins().says("m", 0, "It is wa");
    let kept = said().commits("m", Role::Assistant, vec![text("It is warm")]).durable(cancelled.clone());
    assert_eq!(printed(LIVE, &kept.events), "It is warm\n(cancelled)\n");
    let lost = said().durable(cancelled);
    let gone = "It is wa\n(the partial response above was discarded)\n(cancelled)\n";
    assert_eq!(printed(LIVE, &lost.events), gone);
}

#[test]
fn unusual_events_are_shown_on_a_line_of_their_own() {
    fn check(payload: Payload, expected: &str) {
        assert_eq!(printed(LIVE, &Told::default().durable(payload).events), format!("{expected}\n"));
    }
    let reason = CompletionReason::MaxSteps.into();
    check(
        Payload::TurnCompleted(pb::TurnCompleted { reason, ..pb::TurnCompleted::default() }),
        "(stopped: step limit reached)",
    );
    let failure = pb::Failure {
        reason: FailureReason::ProviderAuth.into(),
        message: "the key was refused".to_owned(),
        ..pb::Failure::default()
    };
    check(
        Payload::TurnFailed(pb::TurnFailed { failure: Some(failure), ..pb::TurnFailed::default() }),
        "the turn failed: the key was refused (PROVIDER_AUTH)",
    );
    check(completed("c", "time", "no", pb::ToolOutcome::Denied), "<- time denied: no");
    check(
        Payload::ApprovalRequested(pb::PendingApproval { call: Some(call("c", "time")), deadline: None }),
        "?  time {\"city\":\"Paris\"} needs approval",
    );
    let reason = pb::ToolCallCancelReason::TurnCancelled.into();
    check(
        Payload::ToolCallCancelled(pb::ToolCallCancelled {
            call_id: "c".to_owned(),
            tool_name: "time".to_owned(),
            reason,
        }),
        "<- time: closed because the turn was cancelled",
    );
}

#[test]
fn control_characters_of_a_model_do_not_move_the_cursor() {
    let wild = "a\u{1b}[2Jb\rc\u{9b}d\te";
    let told = |text_: &str| Told::default().begins().commits("m", Role::Assistant, vec![text(text_)]).events;
    assert_eq!(printed(LIVE, &told(wild)), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\te\n");
    assert_eq!(answered(&told(wild)), format!("{wild}\n"));
}

#[test]
fn text_parts_are_joined_and_reasoning_is_on_its_own_lines() {
    let parts = vec![text("a"), text("b"), reasoning("c"), reasoning("d"), text("e\n"), reasoning("f")];
    let told = Told::default().begins().commits("m", Role::Assistant, parts).events;
    assert_eq!(printed(LIVE, &told), "ab\nc\nd\ne\n\nf\n");
}

#[test]
fn a_queued_message_is_announced_once_and_named_when_applied() {
    let waits = |id: &str, position| {
        let queued = pb::MessageQueued { queued_message_id: id.to_owned(), position, ..pb::MessageQueued::default() };
        pb::Event { payload: Some(Payload::MessageQueued(queued)), ..pb::Event::default() }
    };
    let applied = |ids: &[&str]| {
        let message = |id: &&str| pb::AppliedMessage { queued_message_id: (*id).to_owned(), ..Default::default() };
        let messages = ids.iter().map(message).collect();
        let applied = Payload::MessagesApplied(pb::MessagesApplied { messages, ..Default::default() });
        pb::Event { payload: Some(applied), ..pb::Event::default() }
    };
    let answer = |id: &str, position| pb::QueuedMessage {
        queued_message_id: id.to_owned(),
        position,
        ..pb::QueuedMessage::default()
    };
    let shown = |out: Vec<Output>| -> String {
        let text = |out| match out {
            Output::Answer(text) | Output::Notice(text) => text,
        };
        out.into_iter().map(text).collect()
    };
    let mut view = View::new(LIVE);
    assert_eq!(shown(view.show(&waits("a", 1))), "(queued at position 1)\n", "the event may come before the answer,");
    assert_eq!(shown(view.queued(&answer("a", 1), "look at\nthe tests")), "");
    assert_eq!(shown(view.queued(&answer("b", 2), "and be quick")), "(queued at position 2)\n", "or after it");
    assert_eq!(shown(view.show(&waits("b", 2))), "");
    assert_eq!(shown(view.show(&waits("c", 3))), "(queued at position 3)\n", "another client's");
    let taken = "(sent to the model: look at the tests)\n(sent to the model: and be quick)\n(a queued message was sent to the model)\n";
    assert_eq!(shown(view.show(&applied(&["a", "b", "c"]))), taken);
    assert_eq!(shown(view.show(&applied(&["d", "e"]))), "(2 queued messages were sent to the model as one)\n");
    assert_eq!(shown(view.queued(&answer("f", 0), "late")), "", "an answer that comes when it was taken");
}

#[test]
fn typed_input_begins_on_a_new_line() {
    let mut view = View::new(LIVE);
    let said = Told::default().begins().says("m", 0, "one two");
    for event in &said.events {
        view.show(event);
    }
    assert_eq!(view.pause(), [Output::Answer("\n".to_owned())]);
    assert_eq!(view.pause(), []);
}
