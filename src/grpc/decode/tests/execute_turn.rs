//! Tests ExecuteTurn: its fields, limits, generation settings and stream options.

use std::time::Duration;

use super::*;
use crate::model::{
    LimitsOverride, Role, Seq, SessionId,
    command::{BusyPolicy, Start, TurnRequest},
};

#[track_caller]
fn check_turn(change: impl FnOnce(&mut pb::ExecuteTurnRequest), expected: &[(&str, FieldReason)]) {
    check(decoded(turn_with(change)), expected);
}

#[test]
fn a_minimal_turn_request_gets_defaults() {
    let (command, stream) = decoded(hello()).unwrap();
    assert_eq!(command.session, None);
    assert_eq!(command.idempotency.request, None);
    assert_eq!(command.after, Seq(0));
    let Start::Input(input) = command.start else { panic!("no input") };
    assert_eq!(input.role, Role::User);
    assert_eq!(input.parts, [crate::model::Part::text("Hello")]);
    assert_eq!(command.request, TurnRequest::default());
    assert_eq!(command.busy, BusyPolicy::Enqueue);
    assert_eq!(command.create, None);
    assert_eq!(
        stream,
        StreamOptions { omit_deltas: false, raw_tool_output: false, heartbeat: Duration::from_secs(10) }
    );
}

#[test]
fn session_ids_have_allowed_characters_and_lengths() {
    check_turn(|r| r.session_id = "aZ0._:-".into(), &[]);
    check_turn(|r| r.session_id = "a".repeat(128), &[]);
    check_turn(|r| r.session_id = "a".repeat(129), &[("session_id", TooLarge)]);
    for id in ["a b", "ä", "a/b", "a\0", "a\n"] {
        check_turn(|r| r.session_id = id.into(), &[("session_id", Invalid)]);
    }
}

#[test]
fn request_ids_are_bounded_and_free_of_control_characters() {
    check_turn(|r| r.request_id = "ä key / 1".into(), &[]);
    check_turn(|r| r.request_id = "ä".repeat(128), &[]);
    check_turn(|r| r.request_id = "ä".repeat(129), &[("request_id", TooLarge)]);
    check_turn(|r| r.request_id = "a\0".into(), &[("request_id", Invalid)]);
    check_turn(|r| r.request_id = "a\u{7f}".into(), &[("request_id", Invalid)]);
}

#[test]
fn a_cursor_is_not_negative() {
    check_turn(|r| r.after_seq = i64::MAX, &[]);
    check_turn(|r| r.after_seq = -1, &[("after_seq", OutOfRange)]);
}

#[test]
fn a_model_reference_is_one_bounded_line() {
    check_turn(|r| r.model = "m".repeat(256), &[]);
    check_turn(|r| r.model = "m".repeat(257), &[("model", TooLarge)]);
    check_turn(|r| r.model = "a/b\0".into(), &[("model", Invalid)]);
    let (command, _) = decoded(turn_with(|r| r.model = "a/b".into())).unwrap();
    assert_eq!(command.request.model.as_deref(), Some("a/b"));
}

#[test]
fn a_turn_starts_from_exactly_one_of_input_queue_or_transcript() {
    let start = |change: fn(&mut pb::ExecuteTurnRequest)| decoded(turn_with(change)).unwrap().0.start;
    assert!(matches!(start(|_| ()), Start::Input(_)));
    assert_eq!(start(|r| r.input = None), Start::Queue);
    assert_eq!(start(|r| (r.input, r.continue_transcript) = (None, true)), Start::Transcript);
    check_turn(|r| r.continue_transcript = true, &[("continue_transcript", Conflict)]);
}

#[test]
fn if_turn_running_accepts_the_default_and_reject() {
    let busy = |policy| decoded(turn_with(|r| r.set_busy_policy(policy))).unwrap().0.busy;
    assert_eq!(busy(pb::BusyPolicy::Unspecified), BusyPolicy::Enqueue);
    assert_eq!(busy(pb::BusyPolicy::Reject), BusyPolicy::Reject);
    assert_eq!(busy(pb::BusyPolicy::Enqueue), BusyPolicy::Enqueue);
    assert_eq!(busy(pb::BusyPolicy::Interrupt), BusyPolicy::Interrupt);
    check_turn(|r| r.busy_policy = 9, &[("busy_policy", Unknown)]);
}

#[test]
fn the_session_to_create_has_no_id_of_its_own() {
    let session = |id: &str| Some(pb::Session { session_id: id.into(), ..Default::default() });
    check_turn(|r| r.session = session("a"), &[("session.session_id", Conflict)]);
    let request = turn_with(|r| {
        r.session = session("");
        r.session_id = "a".into();
    });
    let (command, _) = decoded(request).unwrap();
    assert_eq!((command.session, command.create), (Some(SessionId::new("a")), Some(Default::default())));
}

#[test]
fn cancel_on_disconnect_is_off_by_default() {
    let after = |wait| decoded(turn_with(|r| r.cancel_after_disconnect = wait)).unwrap().0.request.cancel_after;
    assert_eq!(after(None), None);
    assert_eq!([after(seconds(1)), after(seconds(86_400))], [1, 86_400].map(|s| Some(Duration::from_secs(s))));
    for wait in [-1, 0, 86_401] {
        check_turn(|r| r.cancel_after_disconnect = seconds(wait), &[("cancel_after_disconnect", OutOfRange)]);
    }
    check_turn(|r| r.cancel_after_disconnect = Some(malformed()[0]), &[("cancel_after_disconnect", Invalid)]);
}

#[test]
fn limits_that_are_zero_or_absent_are_not_set() {
    let limits = |limits| decoded(turn_with(|r| r.limits = Some(limits))).unwrap().0.request.limits;
    let zero = pb::TurnLimits {
        turn_timeout: seconds(0),
        tool_timeout: seconds(0),
        grace_period: seconds(0),
        ..Default::default()
    };
    assert_eq!(limits(zero), LimitsOverride::default());
    let largest = pb::TurnLimits {
        max_steps: 1_000,
        max_output_tokens: i32::MAX,
        max_total_tokens: i64::MAX,
        turn_timeout: seconds(7 * 86_400),
        tool_timeout: seconds(86_400),
        grace_period: seconds(3_600),
    };
    let expected = LimitsOverride {
        max_steps: Some(1_000),
        max_output_tokens: Some(2_147_483_647),
        max_total_tokens: Some(i64::MAX),
        turn_timeout: Some(Duration::from_secs(604_800)),
        tool_timeout: Some(Duration::from_secs(86_400)),
        grace: Some(Duration::from_secs(3_600)),
    };
    assert_eq!(limits(largest), expected);
}

#[test]
fn limits_have_their_ranges() {
    let check_limits = |limits, expected: &[_]| check_turn(|r| r.limits = Some(limits), expected);
    let limits = pb::TurnLimits::default();
    check_limits(pb::TurnLimits { max_steps: 1_001, ..limits }, &[("limits.max_steps", OutOfRange)]);
    let negative = pb::TurnLimits {
        max_steps: -1,
        max_output_tokens: -1,
        max_total_tokens: -1,
        turn_timeout: seconds(-1),
        tool_timeout: seconds(-1),
        grace_period: seconds(-1),
    };
    let fields = [
        ("limits.max_steps", OutOfRange),
        ("limits.max_output_tokens", OutOfRange),
        ("limits.max_total_tokens", OutOfRange),
        ("limits.turn_timeout", OutOfRange),
        ("limits.tool_timeout", OutOfRange),
        ("limits.grace_period", OutOfRange),
    ];
    check_limits(negative, &fields);
    let week = pb::TurnLimits { turn_timeout: seconds(7 * 86_400 + 1), ..limits };
    check_limits(week, &[("limits.turn_timeout", OutOfRange)]);
    let day = pb::TurnLimits { tool_timeout: seconds(86_401), ..limits };
    check_limits(day, &[("limits.tool_timeout", OutOfRange)]);
    let hour = pb::TurnLimits { grace_period: seconds(3_601), ..limits };
    check_limits(hour, &[("limits.grace_period", OutOfRange)]);
    for malformed in malformed() {
        let limits = pb::TurnLimits { turn_timeout: Some(malformed), ..limits };
        check_limits(limits, &[("limits.turn_timeout", Invalid)]);
    }
}

#[test]
fn streams_have_heartbeats_of_one_to_ten_seconds() {
    let options = |interval| Some(pb::StreamOptions { heartbeat_interval: interval, ..Default::default() });
    for interval in [0, 11, -1] {
        check_turn(|r| r.stream = options(seconds(interval)), &[("stream.heartbeat_interval", OutOfRange)]);
    }
    let nanos = Some(prost_types::Duration { seconds: 10, nanos: 1 });
    check_turn(|r| r.stream = options(nanos), &[("stream.heartbeat_interval", OutOfRange)]);
    check_turn(|r| r.stream = options(Some(malformed()[1])), &[("stream.heartbeat_interval", Invalid)]);
    let request = turn_with(|r| {
        let wanted = options(seconds(1)).unwrap();
        r.stream = Some(pb::StreamOptions { omit_deltas: true, include_raw_tool_output: true, ..wanted });
    });
    let expected = StreamOptions { omit_deltas: true, raw_tool_output: true, heartbeat: Duration::from_secs(1) };
    assert_eq!(decoded(request).unwrap().1, expected);
}

#[test]
fn all_violations_come_at_once_and_win_over_what_is_not_implemented() {
    check_turn(
        |r| {
            r.continue_transcript = true;
            r.input = None;
            r.request_id = "\n".into();
            r.session_id = "a b".into();
            r.after_seq = -1;
        },
        &[("session_id", Invalid), ("request_id", Invalid), ("after_seq", OutOfRange)],
    );
}

#[test]
fn twenty_five_violations_are_listed() {
    let request = turn_with(|r| r.input.as_mut().unwrap().parts = vec![pb::Part::default(); 100]);
    let Err(RequestError::Invalid(violations)) = decoded(request) else { panic!("is invalid") };
    assert_eq!((violations.listed.len(), violations.unlisted), (25, 75));
}
