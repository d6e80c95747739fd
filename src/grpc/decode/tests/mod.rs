//! Table tests of the ways in which requests can be invalid.

mod answers;
mod config;
mod execute_turn;
mod generation;
mod input;
mod media;
mod reads;
mod same;
mod tools;
mod update_session;

use std::fmt::Debug;

use super::*;
use crate::{grpc::violations::RequestError, pb};

pub(super) use crate::pb::FieldReason::{
    self, Conflict, Invalid, NotJson, OutOfRange, Required, TooLarge, Unknown, Unsupported,
};

/// Decodes a request that references no blob.
pub(super) fn decoded<R: Decode>(request: R) -> Result<R::Command, RequestError> {
    decode(request, StoredBlobs::new())
}

/// Checks the violations with which a request is rejected. Their order is not specified.
#[track_caller]
pub(super) fn check<T: Debug>(result: Result<T, RequestError>, expected: &[(&str, FieldReason)]) {
    let mut found: Vec<_> = match &result {
        Ok(_) => vec![],
        Err(RequestError::Invalid(violations)) => {
            assert!(violations.listed.iter().all(|violation| !violation.description.is_empty()));
            violations.listed.iter().map(|violation| (violation.field.as_str(), violation.reason)).collect()
        }
        Err(RequestError::NotImplemented { rpc, field }) => {
            panic!("{rpc} does not implement {field}")
        }
    };
    let mut expected = expected.to_vec();
    for list in [&mut found, &mut expected] {
        list.sort_unstable_by_key(|(field, reason)| (*field, *reason as i32));
    }
    assert_eq!(found, expected);
}

/// Checks the field because of which a valid request is rejected as not implemented.
#[track_caller]
pub(super) fn check_not_implemented<T: Debug>(result: Result<T, RequestError>, expected: &str) {
    match result {
        Err(RequestError::NotImplemented { rpc: _, field }) => assert_eq!(field, expected),
        Ok(_) | Err(RequestError::Invalid(_)) => panic!("{expected}: {result:?}"),
    }
}

pub(super) fn part(content: pb::part::Content) -> pb::Part {
    pb::Part { content: Some(content), ..Default::default() }
}

pub(super) fn text(text: &str) -> pb::Part {
    part(pb::part::Content::Text(text.into()))
}

/// The smallest valid ExecuteTurnRequest.
pub(super) fn hello() -> pb::ExecuteTurnRequest {
    let input = pb::InputMessage { parts: vec![text("Hello")], ..Default::default() };
    pb::ExecuteTurnRequest { input: Some(input), ..Default::default() }
}

pub(super) fn turn_with(change: impl FnOnce(&mut pb::ExecuteTurnRequest)) -> pb::ExecuteTurnRequest {
    let mut request = hello();
    change(&mut request);
    request
}

pub(super) fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

/// Malformed durations.
pub(super) fn malformed() -> [prost_types::Duration; 4] {
    let duration = |seconds, nanos| prost_types::Duration { seconds, nanos };
    [duration(1, -1), duration(-1, 1), duration(0, 1_000_000_000), duration(i64::MAX, 0)]
}
