//! Tests the requests that read, and CancelTurn.

use super::*;
use crate::{
    model::{Seq, SessionId, TurnId},
    store::message::View,
};

fn s() -> String {
    "s".into()
}

#[test]
fn every_read_of_a_session_requires_its_id() {
    let missing = [("session_id", Required)];
    check(decoded::<pb::GetSessionRequest>(Default::default()), &missing);
    check(decoded::<pb::ListMessagesRequest>(Default::default()), &missing);
    check(decoded::<pb::WatchEventsRequest>(Default::default()), &missing);
    check(decoded::<pb::ListEventsRequest>(Default::default()), &missing);
    check(decoded::<pb::ListTurnsRequest>(Default::default()), &missing);
    check(decoded::<pb::CancelTurnRequest>(Default::default()), &missing);
    check(decoded::<pb::GetTurnRequest>(Default::default()), &[("session_id", Required), ("turn_id", Required)]);
    assert_eq!(decoded(pb::GetSessionRequest { session_id: s() }).unwrap(), SessionId::new("s"));
}

#[test]
fn turn_ids_have_allowed_characters_and_lengths() {
    let get = |turn: &str| decoded(pb::GetTurnRequest { session_id: s(), turn_id: turn.into() });
    assert_eq!(get("t").unwrap().turn, TurnId::new("t"));
    check(get("a b"), &[("turn_id", Invalid)]);
    check(get(&"t".repeat(129)), &[("turn_id", TooLarge)]);
}

#[test]
fn pages_have_defaults_and_a_largest_size() {
    let sessions = |page_size| decoded(pb::ListSessionsRequest { page_size, ..Default::default() });
    let events = |page_size| decoded(pb::ListEventsRequest { session_id: s(), page_size, ..Default::default() });
    for (asked, size, of_events) in [(0, 50, 100), (1, 1, 1), (1_000, 1_000, 1_000), (i32::MAX, 1_000, 1_000)] {
        assert_eq!(sessions(asked).unwrap().page, PageRequest { size, token: None });
        assert_eq!(events(asked).unwrap().size, of_events);
    }
    check(sessions(-1), &[("page_size", OutOfRange)]);
    check(events(-1), &[("page_size", OutOfRange)]);
    let turns = decoded(pb::ListTurnsRequest { session_id: s(), page_size: 2, page_token: "x".into() }).unwrap();
    assert_eq!(turns.page, PageRequest { size: 2, token: Some("x".into()) });
}

#[test]
fn events_are_read_after_a_cursor() {
    let watch = pb::WatchEventsRequest { session_id: s(), after_seq: 3, follow: true, ..Default::default() };
    let (command, _) = decoded(watch.clone()).unwrap();
    assert_eq!((command.turn, command.after, command.follow), (None, Seq(3), true));
    check(decoded(pb::WatchEventsRequest { after_seq: -1, ..watch.clone() }), &[("after_seq", OutOfRange)]);
    check(decoded(pb::WatchEventsRequest { turn_id: "ä".into(), ..watch.clone() }), &[("turn_id", Invalid)]);
    let stream = Some(pb::StreamOptions { include_raw_tool_output: true, ..Default::default() });
    let (_, options) = decoded(pb::WatchEventsRequest { stream, ..watch }).unwrap();
    assert!(options.raw_tool_output);
    let list = pb::ListEventsRequest { session_id: s(), after_seq: -1, turn_id: "t t".into(), page_size: 0 };
    check(decoded(list), &[("turn_id", Invalid), ("after_seq", OutOfRange)]);
}

#[test]
fn messages_are_listed_in_a_view() {
    let list = |view, at_seq| {
        decoded(pb::ListMessagesRequest { session_id: s(), view, at_seq, newest_first: true, ..Default::default() })
    };
    for (view, expected) in [(0, View::All), (1, View::All), (2, View::Live)] {
        let list = list(view, 0).unwrap();
        assert_eq!((list.view, list.newest_first), (expected, true));
    }
    check(list(9, 0), &[("view", Unknown)]);
    check(list(0, -1), &[("at_seq", OutOfRange)]);
    assert_eq!([0, 7].map(|at| list(0, at).unwrap().at), [None, Some(Seq(7))]);
}

#[test]
fn cancel_has_a_mode_and_a_reason() {
    let cancel = pb::CancelTurnRequest { session_id: s(), reason: "a\0".into(), ..Default::default() };
    let command = decoded(cancel.clone()).unwrap();
    assert_eq!((command.turn, command.reason.as_str()), (None, "a\u{FFFD}"));
    let mode = |mode: i32| decoded(pb::CancelTurnRequest { mode, ..cancel.clone() });
    check(mode(pb::CancelMode::Stop.into()), &[]);
    let rollback = |it: pb::CancelMode| mode(it.into()).unwrap().rollback;
    assert!(rollback(pb::CancelMode::Rollback) && !rollback(pb::CancelMode::Stop) && !command.rollback);
    check(mode(9), &[("mode", Unknown)]);
    let reason = |chars: usize| decoded(pb::CancelTurnRequest { reason: "ü".repeat(chars), ..cancel.clone() });
    check(reason(1_024), &[]);
    check(reason(1_025), &[("reason", TooLarge)]);
}
