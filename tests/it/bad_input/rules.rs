//! Rules that many RPCs share, one table each: valid pages, reuse of a request_id, and the existence of the session.
//! Rules of a single RPC are in the file of its subject.

use contextd::pb::{self, FieldReason as F, MessageView};

use super::{
    context,
    rows::{Row, bad_token, invalid, labels, mismatch, missing},
    scene::{Scene, answered_once, cancelled_once, created_once},
};
use crate::harness::requests::{result, submit, turn};

const SESSION_NOT_FOUND: &str = "SESSION_NOT_FOUND";

/// Every list refuses invalid page sizes and tokens of other lists.
pub(super) fn pages(s: &Scene) -> Vec<Row> {
    let [of_sessions, of_turns, of_messages] = &s.tokens;
    let damaged = of_turns.replace(|c: char| c.is_ascii_digit(), "x");
    vec![
        invalid("a negative page", s.list_sessions(|it| it.page_size = -1), &[("page_size", F::OutOfRange)]),
        invalid(
            "a filter with nothing that sessions can have",
            s.list_sessions(|it| {
                it.filter = Some(pb::SessionFilter {
                    states: vec![pb::SessionState::Idle.into(), 0, 99],
                    metadata: labels((0..33).map(|n| (n.to_string(), String::new()))),
                    text_prefix: "x".repeat(129),
                    updated_since: Some(prost_types::Timestamp { seconds: 0, nanos: -1 }),
                    updated_before: Some(prost_types::Timestamp { seconds: i64::MAX, nanos: 0 }),
                })
            }),
            &[
                ("filter.states[1]", F::Required),
                ("filter.states[2]", F::Unknown),
                ("filter.metadata", F::TooLarge),
                ("filter.updated_since", F::Invalid),
                ("filter.updated_before", F::Invalid),
                ("filter.text_prefix", F::TooLarge),
            ],
        ),
        bad_token(
            "a token of another filter",
            s.list_sessions(|it| {
                it.page_token = of_sessions.clone();
                it.filter = Some(pb::SessionFilter { text_prefix: "x".into(), ..Default::default() });
            }),
        ),
        invalid("a negative page of events", s.list_events(|it| it.page_size = -1), &[("page_size", F::OutOfRange)]),
        bad_token("a token that never was", s.list_sessions(|it| it.page_token = "no token".into())),
        bad_token("a damaged token", s.list_turns(|it| it.page_token = damaged)),
        bad_token("half a token", s.list_turns(|it| it.page_token = of_turns[..of_turns.len() / 2].into())),
        bad_token("a token of another list", s.list_turns(|it| it.page_token = of_messages.clone())),
        bad_token("a token of all sessions", s.list_messages(|it| it.page_token = of_sessions.clone())),
        bad_token(
            "a token of another session",
            s.list_turns(|it| (it.session_id, it.page_token) = ("waits".into(), of_turns.clone())),
        ),
        bad_token(
            "a token of another view",
            s.list_messages(|it| (it.view, it.page_token) = (MessageView::Live.into(), of_messages.clone())),
        ),
        bad_token("a token of a list for an export", s.export(|it| it.page_token = of_messages.clone())),
        invalid("a negative page of an export", s.export(|it| it.page_size = -1), &[("page_size", F::OutOfRange)]),
        bad_token(
            "a token of another direction",
            s.list_messages(|it| (it.newest_first, it.page_token) = (true, of_messages.clone())),
        ),
        invalid("a page of -1 queued messages", s.list_queued(|it| it.page_size = -1), &[("page_size", F::OutOfRange)]),
        bad_token("a page of turns in the queue", s.list_queued(|it| it.page_token = s.tokens[1].clone())),
        invalid("a negative page of models", s.list_models(|it| it.page_size = -1), &[("page_size", F::OutOfRange)]),
        bad_token("a token of no list of models", s.list_models(|it| it.page_token = s.tokens[0].clone())),
    ]
}

/// Every RPC refuses the request_id of a different request.
pub(super) fn request_ids(s: &Scene) -> Vec<Row> {
    let other_words = pb::ExecuteTurnRequest { input: turn("", "", "Bye").input, ..s.first.clone() };
    let key = s.first.request_id.clone();
    let run = |change: pb::ExecuteTurnRequest| s.execute(|it| *it = change);
    let labelled = pb::Session { metadata: labels([("a".into(), "b".into())]), ..Default::default() };
    let session_less = pb::ExecuteTurnRequest { request_id: "created".into(), ..turn("", "", "Hello") };
    vec![
        mismatch("a turn with other words", run(other_words), &key),
        mismatch(
            "a turn of another model",
            run(pb::ExecuteTurnRequest { model: "scripted/demo".into(), ..s.first.clone() }),
            &key,
        ),
        mismatch("a turn under a session's key", run(session_less), "created"),
        mismatch("another session", s.create(|it| *it = created_once(labelled)), "created"),
        mismatch(
            "another answer",
            s.submit(|it| *it = answered_once(submit("waits", vec![result(&s.open, "fine")]))),
            "answered",
        ),
        mismatch("a cancel for another reason", s.cancel(|it| *it = cancelled_once("a reason")), "cancelled"),
        mismatch(
            "a cancel under an answer's key",
            s.cancel(|it| (it.session_id, it.request_id) = ("waits".into(), "answered".into())),
            "answered",
        ),
        mismatch(
            "a message under a cancel's key",
            s.enqueue(|it| (it.session_id, it.request_id) = ("talked".into(), "cancelled".into())),
            "cancelled",
        ),
        mismatch("a clear under a cancel's key", s.clear(|it| it.request_id = "cancelled".into()), "cancelled"),
        mismatch(
            "the key of a fork for a compaction",
            context::compact(s, |it| (it.session_id, it.request_id) = ("forked".into(), "forked".into())),
            "forked",
        ),
        mismatch(
            "the key of a fork for a preparation",
            context::prepare(s, |it| (it.session_id, it.request_id) = ("forked".into(), "forked".into())),
            "forked",
        ),
        mismatch(
            "the key of a fork for a report",
            context::record(s, |it| (it.session_id, it.request_id) = ("forked".into(), "forked".into())),
            "forked",
        ),
        mismatch(
            "the key of a fork for a prune",
            context::prune(s, |it| (it.session_id, it.request_id) = ("forked".into(), "forked".into())),
            "forked",
        ),
        mismatch(
            "another fork",
            s.fork(|it| (it.at_seq, it.new_session_id, it.request_id) = (1, "forked".into(), "forked".into())),
            "forked",
        ),
        mismatch(
            "another append",
            s.append(|it| (it.session_id, it.request_id) = ("imported".into(), "appended".into())),
            "appended",
        ),
        mismatch("an append under a cancel's key", s.append(|it| it.request_id = "cancelled".into()), "cancelled"),
        mismatch("a change under a cancel's key", s.update(|it| it.request_id = "cancelled".into()), "cancelled"),
        mismatch("a deletion under a cancel's key", s.delete(|it| it.request_id = "cancelled".into()), "cancelled"),
    ]
}

/// Every RPC about a session refuses a session that does not exist.
pub(super) fn absent_sessions(s: &Scene) -> Vec<Row> {
    vec![
        missing("an unknown session", s.get_session(|it| it.session_id = "none".into()), SESSION_NOT_FOUND),
        missing("messages of none", s.list_messages(|it| it.session_id = "none".into()), SESSION_NOT_FOUND),
        missing("an export of none", s.export(|it| it.session_id = "none".into()), SESSION_NOT_FOUND),
        missing("turns of none", s.list_turns(|it| it.session_id = "none".into()), SESSION_NOT_FOUND),
        missing("events of none", s.list_events(|it| it.session_id = "none".into()), SESSION_NOT_FOUND),
        missing("a watch of none", s.watch(|it| it.session_id = "none".into()), SESSION_NOT_FOUND),
        missing(
            "a turn of none",
            s.get_turn(|it| (it.session_id, it.turn_id) = ("none".into(), "t".into())),
            SESSION_NOT_FOUND,
        ),
        missing("a cancel of none", s.cancel(|it| it.session_id = "none".into()), SESSION_NOT_FOUND),
        missing("an answer to none", s.submit(|it| *it = submit("none", vec![result("c", "fine")])), SESSION_NOT_FOUND),
        missing("a turn in a session not made", s.execute(|it| it.session = None), SESSION_NOT_FOUND),
        missing(
            "a message for a session that is not there",
            s.enqueue(|it| it.session_id = "no".into()),
            SESSION_NOT_FOUND,
        ),
        missing("a list of no session's queue", s.list_queued(|it| it.session_id = "no".into()), SESSION_NOT_FOUND),
        missing(
            "a message of a session that is not there",
            s.cancel_queued(|it| it.session_id = "no".into()),
            SESSION_NOT_FOUND,
        ),
        missing("a queue of a session that is not there", s.clear(|it| it.session_id = "no".into()), SESSION_NOT_FOUND),
        missing(
            "a compaction of no session",
            context::compact(s, |it| it.session_id = "nowhere".into()),
            SESSION_NOT_FOUND,
        ),
        missing(
            "compactions of no session",
            context::compactions(s, |it| it.session_id = "nowhere".into()),
            SESSION_NOT_FOUND,
        ),
        missing("a prompt of no session", context::render(s, |it| it.session_id = "nowhere".into()), SESSION_NOT_FOUND),
        missing(
            "a prompt of no session as it was",
            context::render(s, |it| (it.session_id, it.at_seq) = ("nowhere".into(), 1)),
            SESSION_NOT_FOUND,
        ),
        missing(
            "a preparation of no session",
            context::prepare(s, |it| it.session_id = "nowhere".into()),
            SESSION_NOT_FOUND,
        ),
        missing("a report in no session", context::record(s, |it| it.session_id = "nowhere".into()), SESSION_NOT_FOUND),
        missing("a prune of no session", context::prune(s, |it| it.session_id = "nowhere".into()), SESSION_NOT_FOUND),
        missing(
            "a return in no session",
            context::restore(s, |it| (it.session_id, it.pruned_at_seq) = ("nowhere".into(), 1)),
            SESSION_NOT_FOUND,
        ),
        missing(
            "statistics of no session",
            context::stats(s, |it| it.session_id = "nowhere".into()),
            SESSION_NOT_FOUND,
        ),
        missing("a fork of none", s.fork(|it| it.session_id = "none".into()), SESSION_NOT_FOUND),
        missing("an append to none", s.append(|it| it.session_id = "none".into()), SESSION_NOT_FOUND),
        missing("a session to count that is not there", s.count(|it| it.session_id = "none".into()), SESSION_NOT_FOUND),
        missing("a change of none", s.change(&["model"], |it| it.session_id = "none".into()), SESSION_NOT_FOUND),
        missing("a deletion of none", s.delete(|it| it.session_id = "none".into()), SESSION_NOT_FOUND),
    ]
}
