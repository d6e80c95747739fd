//! Sample sessions for tests.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    QueuedMessage, Session, SessionState,
    change::Event,
    counters::TokenCounters,
    rows::{NewMessage, Rows},
};
use crate::model::{
    Anchor, CallId, Category, Compaction, CompactionId, CompactionState, Content, Delivery, Fence, MessageId, Part,
    PartSize, Payload, Role, Seq, TokenBasis, TokenCount, TurnId, UsageTotals,
    compaction::{Strategy, Trigger},
    event::{StepPosition, WaitsFor},
    message::StoredPart,
};

/// When the turn times out, in seconds.
pub(super) const TURN_ENDS: i64 = 1_000;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A session whose turn waits for this many calls.
pub(super) fn waiting(open_calls: u32) -> Session {
    Session {
        state: SessionState::AwaitingTools,
        fence: Fence { epoch: 5, op: 9 },
        written_by: Some("there".to_owned()),
        owner: None,
        lease_is_over: true,
        takeovers: 1,
        cancel: None,
        turn: Some(TurnId::new("turn")),
        step: 2,
        attempt: 3,
        open_calls,
        wake_at: Some(at(100)),
        turn_deadline: Some(at(TURN_ENDS)),
        next_seq: Seq(40),
        revision: 7,
        counters: TokenCounters {
            messages: 10,
            overhead: 40,
            tokens: [960, 0, 0, 0, 0, 0, 0, 0, 0],
            parts: [10, 0, 0, 0, 0, 0, 0, 0, 0],
        },
        compaction: None,
        anchor: None,
        growth: None,
        context_version: 3,
        queue: Vec::new(),
    }
}

/// A session whose turn is run by `there`.
pub(crate) fn running() -> Session {
    Session {
        state: SessionState::Running,
        owner: Some("there".to_owned()),
        lease_is_over: false,
        wake_at: None,
        ..waiting(0)
    }
}

/// A message that is queued for the running turn.
pub(crate) fn asap(message: &str) -> QueuedMessage {
    QueuedMessage {
        message: MessageId::new(message),
        delivery: Delivery::Asap,
        starts_turn: false,
        of_execute: false,
        expires_at: None,
    }
}

/// A message that is queued for the end of the running turn.
pub(super) fn when_idle(message: &str) -> QueuedMessage {
    QueuedMessage { delivery: Delivery::WhenIdle, ..asap(message) }
}

/// A measured call whose prompt had this many tokens.
pub(super) fn measured(model: &str, version: i64, input: u32) -> Anchor {
    Anchor {
        model: model.to_owned(),
        version,
        input,
        output: 50,
        estimated_at_anchor: i64::from(input),
        cached: 0,
        estimated: input,
        basis: TokenBasis::Tokenizer,
    }
}

/// Rows of a response: an event, and a message of one part with this many tokens.
pub(super) fn answer_rows(tokens: u32) -> Rows {
    let at = StepPosition { step: 2, attempt: 3 };
    let mut rows = Rows::new("test", 300);
    let updated = Payload::SessionUpdated { revision: 7, paths: Vec::new() };
    rows.event(updated, at);
    let text = StoredPart {
        part: Part::new(Content::Text("words".to_owned())),
        size: PartSize { tokens, category: Category::Assistant },
        estimator: "test".to_owned(),
        pruned: None,
    };
    rows.message(
        NewMessage {
            id: MessageId::new("answer"),
            role: Role::Assistant,
            parts: vec![text],
            overhead: 4,
            pinned: false,
            metadata: BTreeMap::new(),
            response: None,
            queued: Vec::new(),
            created_at: None,
        },
        at,
    );
    rows
}

/// Events in short form: type, object, step and attempt.
pub(super) fn event_summaries(events: &[(StepPosition, Event)]) -> Vec<String> {
    let word = |(at, event): &(StepPosition, Event)| {
        let what = match event {
            Event::CallCompleted(call) => format!("completed {call}"),
            Event::CallRequested { call, waits_for: WaitsFor::Approval, .. } => format!("approval {call}"),
            Event::CallRequested { call, .. } => format!("requested {call}"),
            Event::CallCancelled { call, tool, .. } => format!("closed {call} of {tool}"),
            Event::ActionRequired { calls, to_run } => {
                let calls: Vec<&str> = calls.iter().map(CallId::as_str).collect();
                format!("action {} of {}", to_run, calls.join(" "))
            }
            Event::MessageCommitted(message) => format!("committed {message}"),
            Event::StepStarted { prompt_tokens, .. } => format!("step of {prompt_tokens}"),
            Event::TurnRecovered { .. } => "recovered".to_owned(),
            Event::Complete { payload, size } => payload_summary(payload, *size),
            Event::CompactionExpired(compaction) => format!("lost {compaction}"),
            Event::CompactionReverted(compaction) => format!("reverted {compaction}"),
            Event::Withdrawn { message, .. } => format!("withdrawn {message}"),
            Event::TurnEnded { waiting, .. } => format!("end, {} wait", waiting.len()),
        };
        format!("{what} at {}.{}", at.step, at.attempt)
    };
    events.iter().map(word).collect()
}

/// A complete event in short form: its name, and its `size` if any.
fn payload_summary(payload: &Payload, size: Option<i64>) -> String {
    let whole = format!("{payload:?}");
    let end = whole.find(|it: char| !it.is_alphanumeric());
    let name = &whole[..end.unwrap_or(whole.len())];
    size.map_or_else(|| name.to_owned(), |size| format!("{name} of {size}"))
}

/// A compaction with this id and no other data.
pub(super) fn compaction(id: &str) -> Compaction {
    let nothing = TokenCount { tokens: 0, basis: TokenBasis::Heuristic, estimator: String::new(), margin: 0 };
    Compaction {
        id: Some(CompactionId::new(id)),
        state: CompactionState::Running,
        trigger: Trigger::Manual,
        strategy: Strategy::default(),
        range: None,
        messages_compacted: 0,
        messages_before: 0,
        messages_after: 0,
        tokens_before: nothing,
        tokens_after: None,
        limit: 0,
        was_pruned: false,
        summary: None,
        usage: UsageTotals::default(),
        predecessor: None,
        referenced_tools: Vec::new(),
        unreferenced_tools: Vec::new(),
        failure: None,
        created_at: None,
        ended_at: None,
        reverted_at: None,
    }
}
