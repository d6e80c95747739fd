//! The bytes that this version stores, in `golden.txt`. A test fails if they change: replicas of several versions may
//! read the same rows, and nothing converts old ones.

use std::fmt::Debug;

use proptest::{
    option,
    strategy::{Strategy, ValueTree as _},
    test_runner::TestRunner,
};

use super::{arbitrary, compaction, config, event, message, part, queue, tools, turn};
use crate::model::{
    CallId, CancelCause, CancelOutcome, CompactionId, CompletionReason, Ending, InputMessage, Limits, MessageId,
    Payload, PruneReport, RequestId, Restored, Role, Seq, TokenBasis, Undone, UsagePurpose, derive,
    event::{CallCancelReason, Estimate, StepStarted, TurnRetrying, TurnStarted, UsageRecorded},
};

/// Number of generated values of each form.
const SAMPLES: usize = 300;

/// The same values in every run.
fn samples<T: Debug>(strategy: impl Strategy<Value = T>, count: usize) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    let mut next = || strategy.new_tree(&mut runner).expect("a value").current();
    (0..count).map(|_| next()).collect()
}

fn sample<T: Debug>(strategy: impl Strategy<Value = T>) -> T {
    samples(strategy, 1).remove(0)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash(bytes: &[u8]) -> String {
    derive::blob(bytes).into_string()
}

fn event_row(payload: &Payload) -> String {
    let event::EncodedEvent { kind, refs, payload } = event::encode(payload);
    let row = format!("{kind} {refs:?} {}", hex(&payload));
    row.trim_end().to_owned()
}

/// A row of a form that has too many fields to write out: the hash of generated values, and the hash of their bytes. If
/// the first differs too, the values are others than before, and the second says nothing.
fn samples_row<T: Debug>(name: &str, strategy: impl Strategy<Value = T>, encode: impl Fn(T) -> Vec<u8>) -> String {
    let values = samples(strategy, SAMPLES);
    let shown = hash(format!("{values:?}").as_bytes());
    let mut bytes = Vec::new();
    for value in values {
        let encoded = encode(value);
        bytes.extend((encoded.len() as u64).to_be_bytes());
        bytes.extend(encoded);
    }
    format!("{name} {shown} {}", hash(&bytes))
}

/// Events in which all fields are set.
fn filled_payloads() -> Vec<Payload> {
    let failure = sample(arbitrary::failure());
    let result = sample(arbitrary::turn_result());
    let started = TurnStarted {
        request: Some(RequestId::new("r1")),
        model: "a/b".to_owned(),
        limits: Limits {
            max_steps: 1,
            max_output_tokens: Some(2),
            max_total_tokens: Some(3),
            turn_timeout: std::time::Duration::from_secs(4),
            tool_timeout: std::time::Duration::from_secs(5),
            grace: std::time::Duration::ZERO,
        },
        tool_names: vec!["x".to_owned(), "y".to_owned()],
        input: Some(MessageId::new("m1")),
    };
    let step = StepStarted {
        model: "a/b".to_owned(),
        revision: 12,
        context: sample(arbitrary::token_count()),
        window: 6,
        reserve: 7,
    };
    let used = UsageRecorded {
        purpose: UsagePurpose::Turn,
        model: "a/b".to_owned(),
        usage: Some(sample(arbitrary::usage())),
        estimate: Some(Estimate { estimated: 8, actual: 10, basis: TokenBasis::Calibrated }),
        ratio: 1.5,
        message: Some(MessageId::new("m2")),
        compaction: Some(CompactionId::new("k2")),
    };
    let retrying = TurnRetrying {
        failure: failure.clone(),
        next_attempt: 3,
        delay: std::time::Duration::from_millis(1_500),
        voided: Some(MessageId::new("m3")),
    };
    let cancelled = Ending::Cancelled {
        cause: CancelCause::Disconnected,
        outcome: CancelOutcome::Unknown,
        reason: "enough".to_owned(),
        undone: Some(Undone { messages: vec![MessageId::new("m4")], executed: vec![CallId::new("c4")] }),
    };
    let report = PruneReport {
        calls: vec![CallId::new("c5"), CallId::new("c6")],
        tools: vec!["z".to_owned()],
        saved: 9,
        rebilled: 10,
        at: Some(Seq(11)),
    };
    let restored = Restored { pruned_at: Seq(12), calls: vec![CallId::new("c7")], tokens: 13 };
    let mut payloads = vec![
        Payload::TurnStarted(started),
        Payload::StepStarted(step),
        Payload::UsageRecorded(used),
        Payload::TurnRetrying(retrying),
        Payload::ContextPruned { report },
        Payload::ContextRestored { restored },
    ];
    let endings = [cancelled, Ending::Failed(failure)].into_iter();
    let completed = completions().into_iter().map(Ending::Completed);
    payloads.extend(endings.chain(completed).map(|ending| Payload::TurnEnded { ending, result: result.clone() }));
    payloads
}

fn completions() -> [CompletionReason; 7] {
    use CompletionReason as C;
    [C::Stop, C::MaxSteps, C::Length, C::ContentFilter, C::Budget, C::Deadline, C::Empty]
}

fn call_cancel_rows() -> Vec<String> {
    use CallCancelReason as R;
    [R::TurnCancelled, R::TurnEnded, R::Incomplete, R::UnknownTool]
        .map(|reason| {
            let payload = hex(&event::encode_call_cancelled(reason));
            format!("tool_call_cancelled {reason:?} {payload}")
        })
        .into()
}

fn compaction_rows() -> Vec<String> {
    let kinds = [
        Payload::CompactionStarted,
        Payload::CompactionCompleted,
        Payload::CompactionFailed,
        Payload::CompactionReverted,
    ];
    kinds
        .map(|kind| {
            let first = event::encode(&kind(Box::new(sample(arbitrary::compaction())))).kind;
            samples_row(first, arbitrary::compaction(), |compaction| event::encode(&kind(Box::new(compaction))).payload)
        })
        .into()
}

fn form_rows() -> Vec<String> {
    let info = (option::of(arbitrary::response()), arbitrary::metadata());
    let endings = (arbitrary::failure(), arbitrary::turn_result());
    vec![
        samples_row("config", arbitrary::config(), |it| config::encode(&it)),
        samples_row("tools", arbitrary::tools(), |it| tools::encode(&it)),
        samples_row("turn_request", arbitrary::turn_request(), |it| turn::encode_request(&it)),
        samples_row("turn_outcome", endings, |(failure, result)| {
            turn::encode_outcome(&Ending::Failed(failure), &result)
        }),
        samples_row("compaction", arbitrary::compaction(), |it| compaction::encode(&it)),
        samples_row("message_info", info, |(response, metadata)| {
            message::encode_info(&message::MessageInfo { response, metadata, queued: Vec::new() })
        }),
        samples_row("queued_message", arbitrary::part(), |part| {
            queue::encode(&InputMessage::new(Role::User, vec![part]))
        }),
        samples_row("part", arbitrary::part(), |it| format!("{:?}", part::to_row(&it)).into_bytes()),
    ]
}

#[test]
fn stored_bytes_do_not_change() {
    let mut rows: Vec<String> = arbitrary::payloads().iter().map(event_row).collect();
    rows.extend(filled_payloads().iter().map(event_row));
    rows.extend(call_cancel_rows());
    let dropped = hex(&event::encode_dropped_with_session());
    rows.push(format!("queued_message_dropped with its session {dropped}"));
    let lost = hex(&event::encode_compaction_lost());
    rows.push(format!("compaction_failed of a stopped replica {lost}"));
    rows.extend(compaction_rows());
    rows.extend(form_rows());
    let expected: Vec<&str> = include_str!("golden.txt").lines().collect();
    let changed: Vec<&String> = rows.iter().filter(|row| !expected.contains(&row.as_str())).collect();
    assert!(
        changed.is_empty() && rows.len() == expected.len(),
        "these stored bytes changed: {changed:#?}\nIf that is intended, golden.txt must be:\n{}",
        rows.join("\n")
    );
}
