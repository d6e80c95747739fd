//! Tests the error table row by row, and against the contract in `error.proto`.

use std::collections::{BTreeMap, BTreeSet};

use tonic::Code;
use tonic_types::StatusExt as _;

use super::{
    code::{code, reason_name},
    *,
};
use crate::{
    model::{MessageId, RequestId, SessionId, TurnId, ledger::ContextCategory},
    pb::rpc::EXECUTE_TURN,
};

/// The parts of a status that clients depend on.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    code: Code,
    reason: String,
    metadata: BTreeMap<String, String>,
    details: BTreeSet<&'static str>,
    fields: Vec<(String, String)>,
}

fn see(status: &Status) -> Seen {
    let details = status.get_error_details();
    let info = details.error_info().expect("every status carries an ErrorInfo");
    assert_eq!(info.domain, "contextd.dev");
    let present = [
        ("BadRequest", details.bad_request().is_some()),
        ("ResourceInfo", details.resource_info().is_some()),
        ("PreconditionFailure", details.precondition_failure().is_some()),
        ("QuotaFailure", details.quota_failure().is_some()),
        ("RetryInfo", details.retry_info().is_some()),
        ("RequestInfo", details.request_info().is_some()),
    ];
    let fields = details.bad_request().map(|bad| bad.field_violations.clone()).unwrap_or_default();
    Seen {
        code: status.code(),
        reason: info.reason.clone(),
        metadata: info.metadata.clone().into_iter().collect(),
        details: present.into_iter().filter_map(|(name, is_there)| is_there.then_some(name)).collect(),
        fields: fields.into_iter().map(|violation| (violation.field, violation.reason)).collect(),
    }
}

fn check(status: &Status, code: Code, reason: &str, metadata: &[(&str, &str)], details: &[&'static str]) {
    let seen = Seen { fields: Vec::new(), ..see(status) };
    let metadata = metadata.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    let details = details.iter().copied().collect();
    assert_eq!(seen, Seen { code, reason: reason.to_owned(), metadata, details, fields: vec![] }, "{status:?}");
}

fn field(name: &str) -> Violation {
    Violation { field: name.into(), reason: FieldReason::Required, description: "must be set".into() }
}

fn bad_fields(names: &[&str]) -> RequestError {
    RequestError::Invalid(names.iter().copied().map(field).collect())
}

/// One status for each reason that this build can return.
fn samples() -> Vec<Status> {
    let session = || SessionId::new("s-1");
    vec![
        bad_fields(&["session_id"]).into(),
        turn::Error::IdempotencyMismatch(RequestId::new("r-1")).into(),
        BadToken.into(),
        turn::Error::CursorAhead { last: Seq(7) }.into(),
        turn::Error::EventsLost { last: Seq(7) }.into(),
        store::Error::EventsExpired { oldest: Seq(7) }.into(),
        request_too_large(4_194_304),
        turn::Error::SessionNotFound(session()).into(),
        turn::Error::TurnNotFound(TurnId::new("t-1")).into(),
        turn::Error::ModelNotFound("x/y".into()).into(),
        turn::Error::PolicyNotFound("p".into()).into(),
        turn::Error::SessionExists(session()).into(),
        turn::Error::TranscriptOpen(vec![CallId::new("c-1"), CallId::new("c-2")]).into(),
        turn::Error::ContextChanged { version: 7 }.into(),
        turn::Error::TurnInProgress { turn: TurnId::new("t-1"), last: Seq(7) }.into(),
        turn::Error::EtagMismatch { session: session(), current: "7".into() }.into(),
        turn::Error::QueueFull { session: session(), limit: 7 }.into(),
        turn::Error::QueuedMessageNotFound(MessageId::new("q-1")).into(),
        turn::Error::ContextOverflow { used: 9, window: 7, largest: ContextCategory::User }.into(),
        turn::Error::TenantBeingDeleted(TenantId::new("acme")).into(),
        turn::Error::Overloaded.into(),
        turn::Error::Draining.into(),
        turn::Error::DeadlinePassed.into(),
        store::Error::Unavailable("connection refused".into()).into(),
        not_ready(&ClosedReason::Schema("the database lacks migration 14".into())),
        deadline_exceeded(),
        RequestError::NotImplemented { rpc: EXECUTE_TURN, field: "generation.seed".into() }.into(),
        turn::Error::Internal("a secret".into()).into(),
    ]
}

#[test]
fn invalid_requests_are_invalid_argument() {
    use Code::InvalidArgument as Code;
    check(&bad_fields(&["session_id"]).into(), Code, "INVALID_REQUEST", &[], &["BadRequest"]);
    check(&BadToken.into(), Code, "PAGE_TOKEN_INVALID", &[], &["BadRequest"]);
    let mismatch = turn::Error::IdempotencyMismatch(RequestId::new("r-1")).into();
    check(&mismatch, Code, "IDEMPOTENCY_MISMATCH", &[("request_id", "r-1")], &["BadRequest"]);
    let ahead = turn::Error::CursorAhead { last: Seq(7) }.into();
    check(&ahead, Code, "CURSOR_AHEAD", &[("last_seq", "7")], &["BadRequest"]);
    let calls = vec![(0, CallId::new("c")), (4, CallId::new("d"))];
    check(
        &turn::Error::UnknownCalls { results: calls, approvals: Vec::new() }.into(),
        Code,
        "INVALID_REQUEST",
        &[],
        &["BadRequest"],
    );
    let limit = [("limit_bytes", "10")];
    check(&request_too_large(10), tonic::Code::ResourceExhausted, "REQUEST_TOO_LARGE", &limit, &[]);
}

#[test]
fn not_found_and_already_exists_name_the_resource() {
    let check = |error: turn::Error, code, reason, kind: &str, name: &str| {
        let status = error.into();
        check(&status, code, reason, &[], &["ResourceInfo"]);
        let details = status.get_error_details();
        let info = details.resource_info().expect("checked");
        assert_eq!((info.resource_type.as_str(), info.resource_name.as_str()), (kind, name));
    };
    let session = || SessionId::new("s");
    let turn = TurnId::new("t");
    let gone = Code::NotFound;
    check(turn::Error::SessionNotFound(session()), gone, "SESSION_NOT_FOUND", "contextd.v1.Session", "s");
    check(turn::Error::TurnNotFound(turn), gone, "TURN_NOT_FOUND", "contextd.v1.Turn", "t");
    check(turn::Error::ModelNotFound("x/y".into()), gone, "MODEL_NOT_FOUND", "contextd.v1.Model", "x/y");
    check(turn::Error::PolicyNotFound("p".into()), gone, "POLICY_NOT_FOUND", "contextd.v1.Policy", "p");
    let taken = Code::AlreadyExists;
    check(turn::Error::SessionExists(session()), taken, "SESSION_ALREADY_EXISTS", "contextd.v1.Session", "s");
}

#[test]
fn a_running_turn_is_a_failed_precondition() {
    let status = turn::Error::TurnInProgress { turn: TurnId::new("t"), last: Seq(7) }.into();
    let metadata = [("turn_id", "t"), ("last_seq", "7")];
    check(&status, Code::FailedPrecondition, "TURN_IN_PROGRESS", &metadata, &["PreconditionFailure"]);
    let details = status.get_error_details();
    let violation = &details.precondition_failure().expect("checked").violations[0];
    assert_eq!((violation.r#type.as_str(), violation.subject.as_str()), ("TURN_IN_PROGRESS", "t"));
}

#[test]
fn an_etag_that_is_not_the_sessions_is_answered_with_the_one_it_has() {
    let status = turn::Error::EtagMismatch { session: SessionId::new("s-1"), current: "7".into() }.into();
    check(&status, Code::Aborted, "ETAG_MISMATCH", &[("etag", "7")], &["PreconditionFailure"]);
    let details = status.get_error_details();
    let violation = &details.precondition_failure().expect("checked").violations[0];
    assert_eq!((violation.r#type.as_str(), violation.subject.as_str()), ("ETAG_MISMATCH", "s-1"));
}

#[test]
fn transient_errors_have_a_retry_delay() {
    let check = |status: Status, reason, after| {
        check(&status, Code::Unavailable, reason, &[], &["RetryInfo"]);
        assert_eq!(status.get_error_details().retry_info().and_then(|retry| retry.retry_delay), Some(after));
    };
    check(turn::Error::Draining.into(), "DRAINING", RETRY_DRAINING);
    check(turn::Error::Overloaded.into(), "OVERLOADED", RETRY_BUSY);
    check(store::Error::Busy.into(), "OVERLOADED", RETRY_BUSY);
    check(store::Error::Conflict("deadlock".into()).into(), "OVERLOADED", RETRY_BUSY);
    check(store::Error::Unavailable("host db-7".into()).into(), "DATABASE_UNAVAILABLE", RETRY_BUSY);
    check(store::Error::Refused("password".into()).into(), "DATABASE_UNAVAILABLE", RETRY_BUSY);
    check(not_ready(&ClosedReason::Database), "DATABASE_UNAVAILABLE", RETRY_BUSY);
    check(not_ready(&ClosedReason::Schema("it lacks migration 14".into())), "SCHEMA_OUTDATED", RETRY_BUSY);
    check(turn::Error::Store(store::Error::Busy).into(), "OVERLOADED", RETRY_BUSY);
    super::tests::check(&deadline_exceeded(), Code::DeadlineExceeded, "DEADLINE_EXCEEDED", &[], &[]);
}

#[test]
fn unimplemented_names_the_rpc_and_the_field() {
    let rpc = "contextd.v1.QueueService/EnqueueMessage";
    check(&not_implemented_rpc(rpc), Code::Unimplemented, "NOT_IMPLEMENTED", &[("rpc", rpc)], &[]);
    let metadata = [("rpc", EXECUTE_TURN), ("field", "busy_policy")];
    let field = RequestError::NotImplemented { rpc: EXECUTE_TURN, field: "busy_policy".into() };
    check(&field.into(), Code::Unimplemented, "NOT_IMPLEMENTED", &metadata, &[]);
}

#[test]
fn internal_errors_reveal_only_their_log_id() {
    let defects: [Status; 4] = [
        turn::Error::Internal("secret".into()).into(),
        store::Error::Corrupt("secret".into()).into(),
        store::Error::Schema("secret".into()).into(),
        internal(&"secret"),
    ];
    for status in defects {
        check(&status, Code::Internal, "INTERNAL", &[], &["RequestInfo"]);
        let details = status.get_error_details();
        let id = &details.request_info().expect("checked").request_id;
        assert!(uuid::Uuid::parse_str(id).is_ok(), "{id}");
        assert!(!format!("{status:?}").contains("secret"));
    }
}

#[test]
fn database_driver_messages_are_not_sent_to_clients() {
    let status: Status = store::Error::Unavailable("host db-7 refused".into()).into();
    assert!(!format!("{status:?}").contains("db-7"));
}

#[test]
fn every_violation_has_its_field_and_reason() {
    let status = bad_fields(&["session_id", "turn_id"]).into();
    let required = |name: &str| (name.to_owned(), "REQUIRED".to_owned());
    assert_eq!(see(&status).fields, [required("session_id"), required("turn_id")]);
    let calls = vec![(0, CallId::new("c")), (4, CallId::new("d"))];
    let unknown = |name: &str| (name.to_owned(), "UNKNOWN".to_owned());
    assert_eq!(
        see(&turn::Error::UnknownCalls { results: calls, approvals: vec![(1, CallId::new("d"))] }.into()).fields,
        [unknown("results[0].call_id"), unknown("results[4].call_id"), unknown("approvals[1].call_id")]
    );
}

#[test]
fn the_message_says_how_many_violations_there_are() {
    let message = |violations: usize| Status::from(bad_fields(&vec!["turn_id"; violations])).message().to_owned();
    assert_eq!(message(1), "turn_id: must be set");
    assert_eq!(message(3), "turn_id: must be set (and 2 more)");
    assert_eq!(message(30), "turn_id: must be set (and 29 more, 5 of them not listed)");
}

#[test]
fn the_largest_status_fits_into_the_headers_that_clients_take() {
    let long = Violation { field: "f".repeat(80), reason: FieldReason::OutOfRange, description: "d".repeat(80) };
    let status: Status = RequestError::Invalid(std::iter::repeat_n(long, 1_000).collect()).into();
    let in_base64 = status.details().len() * 4 / 3;
    assert!(in_base64 + status.message().len() < 7_500, "{in_base64}");
}

#[test]
fn open_calls_are_listed_as_far_as_the_headers_go() {
    let calls = (0..1_000).map(|n| CallId::new(format!("{n:0>100}"))).collect();
    let status: Status = turn::Error::TranscriptOpen(calls).into();
    assert!(see(&status).metadata["call_ids"].split(',').all(|call| call.len() == 100));
    assert!(status.details().len() * 4 / 3 + status.message().len() < 7_500);
}

/// What `error.proto` promises for a reason: its code, its metadata keys and its details.
type Promise = (String, BTreeSet<String>, BTreeSet<String>);

fn promises() -> BTreeMap<String, Promise> {
    let proto = include_str!("../../../proto/contextd/v1/error.proto");
    let mut comment = String::new();
    let mut promises = BTreeMap::new();
    for line in proto.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("//") {
            comment += text;
        } else {
            if let Some(name) = line.strip_prefix("ERROR_REASON_").and_then(|rest| rest.split(' ').next()) {
                promises.insert(name.to_owned(), promise(&comment));
            }
            comment.clear();
        }
    }
    promises
}

/// Parses a comment like "NOT_FOUND + ResourceInfo {id, other}. Text."
fn promise(comment: &str) -> Promise {
    let first = comment.trim().split('.').next().unwrap_or_default();
    let (head, keys) = first.split_once('{').unwrap_or((first, ""));
    let mut head = head.split('+').map(|word| word.trim().to_owned());
    let code = head.next().unwrap_or_default();
    let keys = keys.trim_end_matches('}').split(", ").filter(|key| !key.is_empty()).map(str::to_owned).collect();
    (code, keys, head.collect())
}

/// Converts `InvalidArgument` to `INVALID_ARGUMENT`.
fn shout(code: Code) -> String {
    format!("{code:?}").chars().fold(String::new(), |mut name, c| {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
        name
    })
}

#[test]
fn every_reason_has_the_code_that_its_comment_promises() {
    let promises = promises();
    let reasons = (1..1_000).filter_map(|number| ErrorReason::try_from(number).ok());
    for reason in reasons {
        let name = reason_name(reason);
        assert_eq!(shout(code(reason)), promises[name].0, "{name}");
    }
}

#[test]
fn every_status_carries_what_the_comment_on_its_reason_promises() {
    let promises = promises();
    for status in samples() {
        let seen = see(&status);
        let (code, keys, details) = &promises[&seen.reason];
        assert_eq!(&shout(seen.code), code, "{}", seen.reason);
        assert_eq!(&seen.metadata.into_keys().collect::<BTreeSet<_>>(), keys, "{}", seen.reason);
        let sent: BTreeSet<_> = seen.details.iter().map(|&name| name.to_owned()).collect();
        assert!(details.is_subset(&sent), "{}: {details:?} {sent:?}", seen.reason);
    }
}
