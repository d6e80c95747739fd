//! The checker of invariants finds violations: for each rule, a valid session is broken.

use crate::harness::invariants::{
    Call, Event, Message, Part, Queued, QueuedStatus, RunState, Stored, Turn, check, one_answer_per_step,
};

fn event(seq: i64, kind: &str, refs: &str) -> Event {
    Event {
        seq,
        epoch: 1,
        turn: "t".to_owned(),
        kind: kind.to_owned(),
        refs: refs.split_whitespace().map(str::to_owned).collect(),
    }
}

fn message(seq: i64, id: &str, role: i16) -> Message {
    Message { seq, id: id.to_owned(), role, turn: "t".to_owned(), step: 1, ..Message::default() }
}

fn part(message: &str, kind: &str, call: &str, body: &str) -> Part {
    Part {
        message: message.to_owned(),
        kind: kind.to_owned(),
        call: call.to_owned(),
        body: body.to_owned(),
        ..Part::default()
    }
}

fn queued(id: &str, status: QueuedStatus, seq: i64) -> Queued {
    Queued { id: id.to_owned(), status, seq, words: Some(format!("words of {id}")), ..Queued::default() }
}

/// A turn that called a tool, applied a queued message and ended. Another message was withdrawn, and a third one is
/// queued.
fn sound() -> Stored {
    Stored {
        turn: "t".to_owned(),
        next_seq: 12,
        events: vec![
            event(1, "turn_started", ""),
            event(2, "message_committed", "input"),
            event(3, "usage_recorded", "call/s/1/0/1"),
            event(4, "message_committed", "calls"),
            event(5, "tool_call_requested", "c"),
            event(6, "tool_call_completed", "c"),
            event(7, "message_committed", "results"),
            event(8, "queued_message_cancelled", "q1"),
            event(9, "messages_applied", "taken"),
            event(10, "message_committed", "taken"),
            event(11, "turn_completed", ""),
        ],
        messages: vec![
            message(2, "input", 2),
            message(4, "calls", 3),
            message(7, "results", 4),
            message(10, "taken", 2),
        ],
        parts: vec![
            part("calls", "tool_call", "c", "{}"),
            part("results", "tool_result", "c", "seen"),
            part("taken", "text", "", "First: words of q2"),
        ],
        calls: vec![Call { id: "c".to_owned(), turn: "t".to_owned(), status: 3 }],
        queue: vec![
            queued("q1", QueuedStatus::Cancelled, 8),
            Queued { applied_to: "taken".to_owned(), ..queued("q2", QueuedStatus::Applied, 9) },
            queued("q3", QueuedStatus::Pending, 0),
        ],
        turns: vec![Turn { id: "t".to_owned(), first_seq: 1, last_seq: 11, ..Turn::default() }],
        ..Stored::default()
    }
}

/// The rules that a changed session violates, such as `I4 batch`.
fn broken(change: impl FnOnce(&mut Stored)) -> Vec<String> {
    let mut session = sound();
    change(&mut session);
    let found = check(&session);
    let mut rules: Vec<String> = found.iter().map(|it| format!("{:?} {}", it.invariant, it.name)).collect();
    rules.dedup();
    rules
}

type Change = fn(&mut Stored);

fn check_all(cases: &[(&str, Change, &[&str])]) {
    for (what, change, expected) in cases {
        assert_eq!(broken(change), *expected, "{what}");
    }
}

#[test]
fn a_sound_session_violates_no_invariant() {
    assert_eq!(broken(|_| {}), Vec::<String>::new());
}

#[test]
fn i1_finds_gaps_and_messages_without_events() {
    check_all(&[
        ("a lost event", |it| drop(it.events.remove(2)), &["I1 gap"]),
        ("an event twice", |it| it.events[4].seq = 3, &["I1 gap"]),
        ("a number without event", |it| it.next_seq += 1, &["I1 gap"]),
        ("a message at another number", |it| it.messages[0].seq = 3, &["I1 unrecorded", "I1 missing"]),
        ("an event without its message", |it| drop(it.messages.remove(0)), &["I1 missing"]),
        (
            "an event of another message",
            |it| it.events[1].refs = vec!["other".to_owned()],
            &["I1 unrecorded", "I1 missing"],
        ),
    ]);
}

#[test]
fn a_fork_is_numbered_after_its_source() {
    let fork = |it: &mut Stored| {
        it.forked_at = 10;
        it.events.drain(..10);
        it.events[0].kind = "session_forked".to_owned();
        it.events[0].turn.clear();
        it.turns.clear();
        it.queue.clear();
    };
    assert_eq!(broken(fork), Vec::<String>::new());
    let gap = broken(|it| {
        fork(it);
        it.forked_at = 9;
    });
    assert_eq!(gap, ["I1 gap", "I1 unrecorded"]);
}

#[test]
fn i2_finds_writes_of_stale_owners() {
    check_all(&[
        ("an epoch after a later one", |it| it.events[1].epoch = 2, &["I2 old owner"]),
        (
            "a write under the epoch of another owner",
            |it| it.events[2].refs = vec!["call/s/0/0/1".to_owned()],
            &["I2 stale write"],
        ),
        (
            "the same write again",
            |it| {
                it.events.push(event(12, "usage_recorded", "call/s/1/0/1"));
                it.events[11].turn.clear();
                it.next_seq += 1;
            },
            &["I2 doubled write"],
        ),
        (
            "two writes of one operation",
            |it| {
                it.events.push(event(12, "usage_recorded", "say/s/1/0/2"));
                it.events[11].turn.clear();
                it.next_seq += 1;
            },
            &["I2 two writes"],
        ),
    ]);
}

#[test]
fn i3_finds_queued_messages_that_end_never_twice_or_without_their_event() {
    let message: &[&str] = &["I3 message"];
    check_all(&[
        ("withdrawn, and in the transcript", |it| it.parts[2].body = "words of q2, words of q1".to_owned(), message),
        ("applied, and not in the transcript", |it| it.parts[2].body = "words of q23".to_owned(), message),
        ("applied twice", |it| it.parts.push(part("taken", "text", "", "words of q2")), message),
        ("in another message", |it| it.queue[1].applied_to = "input".to_owned(), message),
        ("pending, and in the transcript", |it| it.parts[2].body = "words of q2; words of q3".to_owned(), message),
        ("ended by another event", |it| it.events[7].kind = "queued_message_expired".to_owned(), message),
        ("ended without an event", |it| it.events[7].kind = "queue_cleared".to_owned(), message),
        ("applied without an event", |it| it.events[8].kind = "queue_cleared".to_owned(), message),
        ("applied and withdrawn", |it| it.events[7].refs.push("q2".to_owned()), message),
        ("pending in a deleted session", |it| it.state = RunState::Deleted, message),
    ]);
}

#[test]
fn a_queued_message_without_known_words_is_checked_by_its_events_alone() {
    let unknown = |it: &mut Stored| it.set_words(|_| None);
    assert_eq!(broken(unknown), Vec::<String>::new());
    let ended = broken(|it| {
        unknown(it);
        it.queue[0].seq = 7;
    });
    assert_eq!(ended, ["I3 message"]);
}

#[test]
fn i4_finds_calls_and_results_that_do_not_match() {
    check_all(&[
        ("a call without a result", |it| drop(it.parts.remove(1)), &["I4 results", "I4 batch"]),
        ("a call with two results", |it| it.parts.push(part("results", "tool_result", "c", "again")), &["I4 results"]),
        ("a closed call without its event", |it| it.events[5].kind = "step_started".to_owned(), &["I4 results"]),
        ("a call that is closed twice", |it| it.events[4] = event(5, "tool_call_cancelled", "c"), &["I4 results"]),
        (
            "a call that is requested twice",
            |it| it.events[2] = event(3, "tool_call_requested", "c"),
            &["I4 asked twice"],
        ),
        (
            "a call that is open after its turn",
            |it| it.calls[0].status = 0,
            &["I4 results", "I4 open call", "I4 results", "I4 recount"],
        ),
        ("a count that is off", |it| it.open_calls = 1, &["I4 recount"]),
        (
            "a message between calls and results",
            |it| {
                it.events[4] = event(5, "message_committed", "between");
                it.messages.insert(2, message(5, "between", 2));
            },
            &["I4 batch"],
        ),
        (
            "calls at the end, and none open",
            |it| {
                it.messages.truncate(2);
                it.events.truncate(6);
                it.events[5].kind = "turn_completed".to_owned();
                it.calls.clear();
                it.queue.clear();
                it.next_seq = 7;
                it.turns[0].last_seq = 6;
            },
            &["I4 batch"],
        ),
    ]);
}

#[test]
fn a_transcript_may_end_in_one_batch_of_open_calls() {
    let waiting = |it: &mut Stored| {
        it.state = RunState::Waiting;
        it.turns[0].live = true;
        it.events.truncate(5);
        it.messages.truncate(2);
        it.parts.truncate(1);
        it.queue.clear();
        it.calls[0].status = 0;
        it.open_calls = 1;
        it.next_seq = 6;
    };
    assert_eq!(broken(waiting), Vec::<String>::new());
}

#[test]
fn a_step_with_two_answers_is_found() {
    let mut session = sound();
    assert!(one_answer_per_step(&session).is_empty());
    session.messages[3].role = 3;
    assert_eq!(
        one_answer_per_step(&session)[0].to_string(),
        "I4 two answers: taken is another answer of step 1 of turn t"
    );
}

#[test]
fn i9_finds_turns_that_end_never_or_twice() {
    check_all(&[
        ("no terminal event", |it| it.events[10].kind = "turn_retrying".to_owned(), &["I9 ends"]),
        ("two terminal events", |it| it.events[2].kind = "turn_failed".to_owned(), &["I9 ends", "I9 after the end"]),
        ("another end than the turn has", |it| it.turns[0].last_seq = 10, &["I9 ends"]),
        ("live in its row only", |it| it.turns[0].live = true, &["I9 ends"]),
        ("live in the run, and ended", |it| it.state = RunState::Running, &["I9 ends"]),
        (
            "an event after the end",
            |it| {
                it.events.push(event(12, "step_started", ""));
                it.next_seq = 13;
            },
            &["I9 after the end"],
        ),
        ("another beginning", |it| it.events[0].kind = "step_started".to_owned(), &["I9 begin"]),
        ("an event of an unknown turn", |it| it.events[2].turn = "u".to_owned(), &["I9 begin"]),
        (
            "an unknown live turn",
            |it| {
                it.state = RunState::Running;
                it.turn = "u".to_owned();
            },
            &["I9 begin"],
        ),
    ]);
}
