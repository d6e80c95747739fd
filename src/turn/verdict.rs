//! What becomes of the answers of a submission: told from where their calls stand afterwards.

use super::Error;
use crate::{
    model::{
        CallId,
        command::{AnswerStatus, Idempotency},
    },
    store::{
        submission::{FirstSubmission, Submitted},
        tool_call::{CallState, KnownCall},
    },
};

/// What was sent about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sent {
    /// A result.
    Result {
        /// Its hash.
        hash: String,
        /// It was prepared for a call whose arguments a person changed.
        edited: bool,
    },
    /// A denial of this hash.
    Denial(String),
    /// An approval, with the arguments in place of the model's.
    Approval(Option<String>),
}

/// What became of an answer: taken now, or by the same request before; else it depends on the call.
pub(super) fn status(call: &CallId, sent: &Sent, submitted: &Submitted) -> AnswerStatus {
    let before = submitted.first.as_ref().is_some_and(|first| first.accepted.contains(call));
    if before || submitted.accepted.contains(call) {
        return AnswerStatus::Accepted;
    }
    submitted.calls.get(call).map_or(AnswerStatus::Stale, |known| refused(known, sent))
}

/// Why an answer was not taken.
fn refused(call: &KnownCall, sent: &Sent) -> AnswerStatus {
    match (call.state, sent) {
        (CallState::AwaitingTurn, _) | (CallState::AwaitingApproval, Sent::Result { .. }) => AnswerStatus::NotRequested,
        // Approved, with other arguments, while the result was on its way.
        (CallState::Requested, Sent::Result { edited, .. }) if *edited != call.edited.is_some() => {
            AnswerStatus::NotRequested
        }
        (CallState::Requested | CallState::Answered, Sent::Approval(edited)) if *edited == call.edited => {
            AnswerStatus::Duplicate
        }
        (CallState::Answered, Sent::Result { hash, .. }) | (CallState::Denied, Sent::Denial(hash))
            if call.answer.as_ref() == Some(hash) =>
        {
            AnswerStatus::Duplicate
        }
        (
            CallState::Requested
            | CallState::AwaitingApproval
            | CallState::Answered
            | CallState::Denied
            | CallState::Closed,
            Sent::Result { .. } | Sent::Denial(_) | Sent::Approval(_),
        ) => AnswerStatus::Stale,
    }
}

/// Whether a request is the one that its key came with first.
pub(super) fn same_request(first: Option<&FirstSubmission>, idempotency: &Idempotency) -> Result<(), Error> {
    match (first, &idempotency.request) {
        (Some(first), Some(request)) if first.hash != idempotency.hash => {
            Err(Error::IdempotencyMismatch(request.clone()))
        }
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}
