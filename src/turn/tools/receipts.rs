//! The status of each answer of a submission, derived from the states of the calls afterwards.

use crate::{
    model::{CallId, command::AnswerStatus},
    store::{
        answers::SubmissionOutcome,
        known_call::{CallState, StoredCall},
    },
};

/// The content of one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::turn) enum AnswerContent {
    /// The hash of a result.
    Result(String),
    /// The hash of a denial.
    Denial(String),
    /// An approval, with the edited arguments if there are any.
    Approval(Option<String>),
}

/// The status of an answer. It is accepted if it was stored now, or before by the same request.
/// Otherwise the status depends on the state of the call before the write (`seen`) and after it.
pub(in crate::turn) fn status(
    call: &CallId,
    sent: &AnswerContent,
    seen: &StoredCall,
    submitted: &SubmissionOutcome,
) -> AnswerStatus {
    let before = submitted.first.as_ref().is_some_and(|first| first.accepted.contains(call));
    if before || submitted.accepted.contains(call) {
        return AnswerStatus::Accepted;
    }
    submitted.calls.get(call).map_or(AnswerStatus::Stale, |now| refused(now, seen, sent))
}

/// Why an answer was not accepted.
fn refused(now: &StoredCall, seen: &StoredCall, sent: &AnswerContent) -> AnswerStatus {
    let duplicate = match (now.state, sent) {
        (CallState::Requested | CallState::Answered, AnswerContent::Approval(edited)) => *edited == now.edited,
        (CallState::Answered, AnswerContent::Result(hash)) | (CallState::Denied, AnswerContent::Denial(hash)) => {
            now.answer.as_ref() == Some(hash)
        }
        (
            CallState::Requested
            | CallState::AwaitingApproval
            | CallState::AwaitingEarlierCalls
            | CallState::Answered
            | CallState::Denied
            | CallState::Closed,
            AnswerContent::Result(_) | AnswerContent::Denial(_) | AnswerContent::Approval(_),
        ) => false,
    };
    if duplicate {
        AnswerStatus::Duplicate
    } else if now.state.is_open() && !fits(seen.state, sent) {
        AnswerStatus::NotRequested
    } else {
        AnswerStatus::Stale
    }
}

/// Whether a call in this state accepts or has accepted such an answer.
fn fits(seen: CallState, sent: &AnswerContent) -> bool {
    match seen {
        CallState::AwaitingEarlierCalls => false,
        CallState::AwaitingApproval => !matches!(sent, AnswerContent::Result(_)),
        CallState::Requested | CallState::Answered | CallState::Denied | CallState::Closed => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TurnId;

    fn call(state: CallState) -> StoredCall {
        let turn = TurnId::new("t");
        let name = "look".to_owned();
        let answer = Some("hash".to_owned());
        StoredCall {
            turn,
            step: 1,
            name,
            state,
            edited: Some("{}".to_owned()),
            answer,
            batch: crate::store::known_call::Batch::default(),
        }
    }

    #[test]
    fn a_refused_submission_is_duplicate_early_or_stale() {
        use AnswerStatus::{Duplicate, NotRequested, Stale};
        use CallState::{Answered, AwaitingApproval, AwaitingEarlierCalls, Closed, Denied, Requested};
        let result = |hash: &str| AnswerContent::Result(hash.to_owned());
        let denial = |hash: &str| AnswerContent::Denial(hash.to_owned());
        let approval = |edited: &str| AnswerContent::Approval(Some(edited.to_owned()));
        let table = [
            (AwaitingEarlierCalls, AwaitingEarlierCalls, result("hash"), NotRequested),
            (AwaitingEarlierCalls, Requested, result("hash"), NotRequested),
            (AwaitingEarlierCalls, AwaitingApproval, approval("{}"), NotRequested),
            (AwaitingEarlierCalls, AwaitingApproval, denial("hash"), NotRequested),
            (AwaitingEarlierCalls, Closed, result("hash"), Stale),
            (AwaitingApproval, AwaitingApproval, result("hash"), NotRequested),
            (AwaitingApproval, Requested, result("hash"), NotRequested),
            (AwaitingApproval, Requested, approval("{}"), Duplicate),
            (AwaitingApproval, Requested, approval("{1}"), Stale),
            (AwaitingApproval, Requested, denial("hash"), Stale),
            (AwaitingApproval, Denied, denial("hash"), Duplicate),
            (AwaitingApproval, Denied, denial("other"), Stale),
            (AwaitingApproval, Denied, approval("{}"), Stale),
            (AwaitingApproval, AwaitingApproval, approval("{}"), Stale),
            (Requested, Requested, result("hash"), Stale),
            (Requested, Answered, result("hash"), Duplicate),
            (Requested, Answered, result("other"), Stale),
            (Requested, Answered, approval("{}"), Duplicate),
            (Requested, Closed, approval("{}"), Stale),
            (Denied, Denied, result("hash"), Stale),
        ];
        for (seen, now, sent, expected) in table {
            assert_eq!(refused(&call(now), &call(seen), &sent), expected, "{seen:?}, then {now:?}: {sent:?}");
        }
    }
}
