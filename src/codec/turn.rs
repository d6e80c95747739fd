//! Turns: their request, their outcome, and their wire forms.

use prost::Message as _;

use crate::{
    model::{
        CancelCause, CancelOutcome, CompletionReason, Ending, TurnResult, TurnState,
        command::TurnRequest,
        event::{PendingCall, WaitsFor},
    },
    pb,
};

use super::{
    DecodeError,
    field::{Field as _, choices, messages},
    read,
};

choices! {
    TurnState = TurnState { Running, AwaitingTools, Completed, Cancelled, Failed }
    CompletionReason = CompletionReason {
        Stop, MaxSteps, Length, ContentFilter, Budget, Deadline, Empty,
    }
    CancelCause = CancelCause { Requested, Interrupted, Disconnected, SessionDeleted }
    CancelOutcome = CancelOutcome {
        None, PartialAssistant, ToolsInProgress;
        Unspecified = Unknown
    }
}

messages! {
    // A turn's overrides of its session.
    TurnRequest = ExecuteTurnRequest {
        tools,
        limits via unless_default,
        model,
        generation via unless_default,
        cancel_after = cancel_after_disconnect,
        _ = session_id,
        _ = request_id,
        _ = after_seq,
        _ = input,
        _ = continue_transcript,
        _ = busy_policy,
        _ = stream,
        _ = session,
    }
    // The queue is read separately.
    TurnResult = TurnResult {
        step_count,
        final_message = final_message_id,
        finish = finish_reason,
        last_step_usage,
        total_usage,
        elapsed,
        _ = queued_message_ids,
    }
}

/// Encodes a turn's overrides of its session as an `ExecuteTurnRequest`. Returns no bytes if it has none.
pub fn encode_request(request: &TurnRequest) -> Vec<u8> {
    let request: pb::ExecuteTurnRequest = request.to_field();
    request.encode_to_vec()
}

/// Decodes a turn's overrides of its session.
pub fn decode_request(bytes: &[u8]) -> Result<TurnRequest, DecodeError> {
    let request: pb::ExecuteTurnRequest = read("turn request", bytes)?;
    TurnRequest::from_field("turn request", request)
}

/// Encodes the end and the result of a turn as a `Turn` with only these fields.
pub fn encode_outcome(ending: &Ending, result: &TurnResult) -> Vec<u8> {
    let mut turn = pb::Turn { result: result.to_field(), ..pb::Turn::default() };
    match ending {
        Ending::Completed(reason) => turn.completion_reason = reason.to_field(),
        Ending::Cancelled { cause, outcome: _, reason: _, undone: _ } => turn.cancel_cause = cause.to_field(),
        Ending::Failed(failure) => turn.failure = failure.to_field(),
    }
    turn.encode_to_vec()
}

/// Sets the end and the result of a turn in a response. Empty `bytes` mean that the turn is live; nothing is set.
pub fn outcome_into_pb(bytes: &[u8], turn: &mut pb::Turn) -> Result<(), DecodeError> {
    if bytes.is_empty() {
        return Ok(());
    }
    // The turn's own totals take precedence: the outcome was encoded without a compaction that ended during the last
    // call.
    let spent = turn.result.take().and_then(|so_far| so_far.total_usage);
    turn.merge(bytes).map_err(|error| DecodeError::new("turn outcome", error))?;
    if let Some(result) = &mut turn.result {
        result.total_usage = spent.or(result.total_usage);
    }
    Ok(())
}

/// Converts the calls that the host must act on: those that wait for a result, and those that wait for an approval.
pub fn pending_to_pb<'a>(
    pending: impl IntoIterator<Item = &'a PendingCall>,
) -> (Vec<pb::PendingCall>, Vec<pb::PendingApproval>) {
    let mut calls = Vec::new();
    let mut approvals = Vec::new();
    for PendingCall { call, deadline, waits_for, executor } in pending {
        let call = call.to_field();
        let deadline = deadline.to_field();
        match waits_for {
            WaitsFor::Result { edited } => {
                calls.push(pb::PendingCall { call, executor: executor.to_field(), deadline, arguments_edited: *edited })
            }
            WaitsFor::Approval => approvals.push(pb::PendingApproval { call, deadline }),
        }
    }
    (calls, approvals)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{codec::arbitrary, model::ToolSet};

    proptest! {
        #[test]
        fn turn_requests_round_trip(request in arbitrary::turn_request()) {
            prop_assert_eq!(decode_request(&encode_request(&request)), Ok(request));
        }

        #[test]
        fn turn_outcome_has_status_and_reason(failure in arbitrary::failure(), result in arbitrary::turn_result()) {
            let turn = outcome_of(&Ending::Failed(failure.clone()), &result);
            let expected: (Option<pb::Failure>, Option<pb::TurnResult>) = (failure.to_field(), result.to_field());
            prop_assert_eq!((turn.failure, turn.result), expected);
        }
    }

    fn outcome_of(ending: &Ending, result: &TurnResult) -> pb::Turn {
        let mut turn = pb::Turn::default();
        outcome_into_pb(&encode_outcome(ending, result), &mut turn).unwrap();
        turn
    }

    #[test]
    fn an_empty_tool_list_differs_from_the_sessions_tools() {
        let check = |tools: Option<ToolSet>| {
            let request = TurnRequest { tools: tools.clone(), ..TurnRequest::default() };
            assert_eq!(decode_request(&encode_request(&request)).unwrap().tools, tools);
        };
        check(None);
        check(Some(ToolSet::default()));
        assert_eq!(encode_request(&TurnRequest::default()), Vec::<u8>::new());
    }

    #[test]
    fn every_ending_is_stored_distinctly() {
        let result = TurnResult::default();
        let turn = outcome_of(&Ending::Completed(CompletionReason::Budget), &result);
        assert_eq!((turn.completion_reason(), turn.cancel_cause), (pb::CompletionReason::Budget, 0));
        let cancelled = Ending::Cancelled {
            cause: CancelCause::Requested,
            outcome: CancelOutcome::ToolsInProgress,
            reason: "enough".to_owned(),
            undone: None,
        };
        let turn = outcome_of(&cancelled, &result);
        assert_eq!((turn.completion_reason, turn.cancel_cause()), (0, pb::CancelCause::Requested));
    }

    #[test]
    fn a_live_turn_is_left_as_it_is() {
        let mut turn = pb::Turn { result: Some(pb::TurnResult::default()), ..pb::Turn::default() };
        outcome_into_pb(&[], &mut turn).unwrap();
        assert_eq!(turn.result, Some(pb::TurnResult::default()));
    }
}
