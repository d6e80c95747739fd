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
    DecodeError, failure, generation, limits, number::signed, part, read, response, time, tools,
    usage,
};

/// Encodes a turn's overrides of its session as an `ExecuteTurnRequest`. Returns no bytes if it has none.
pub fn encode_request(request: &TurnRequest) -> Vec<u8> {
    let TurnRequest {
        tools,
        limits,
        model,
        generation,
        cancel_after,
    } = request;
    pb::ExecuteTurnRequest {
        tools: tools.as_ref().map(tools::to_pb),
        limits: limits::override_to_stored(limits),
        model: model.clone().unwrap_or_default(),
        generation: generation::to_stored(generation),
        cancel_after_disconnect: cancel_after.map(time::duration_to_pb),
        ..pb::ExecuteTurnRequest::default()
    }
    .encode_to_vec()
}

/// Decodes a turn's overrides of its session.
pub fn decode_request(bytes: &[u8]) -> Result<TurnRequest, DecodeError> {
    let pb::ExecuteTurnRequest {
        session_id: _,
        request_id: _,
        after_seq: _,
        input: _,
        continue_transcript: _,
        tools,
        limits,
        model,
        generation,
        busy_policy: _,
        cancel_after_disconnect,
        stream: _,
        session: _,
    } = read("turn request", bytes)?;
    Ok(TurnRequest {
        tools: tools.map(tools::from_pb).transpose()?,
        limits: limits::override_from_stored(limits)?,
        model: Some(model).filter(|model| !model.is_empty()),
        generation: generation::from_stored(generation)?,
        cancel_after: cancel_after_disconnect
            .map(time::duration_from_pb)
            .transpose()?,
    })
}

/// Encodes the end and the result of a turn as a `Turn` with only these fields.
pub fn encode_outcome(ending: &Ending, result: &TurnResult) -> Vec<u8> {
    let mut turn = pb::Turn {
        result: Some(result_to_pb(result)),
        ..pb::Turn::default()
    };
    match ending {
        Ending::Completed(reason) => turn.completion_reason = completion_to_pb(*reason).into(),
        Ending::Cancelled {
            cause,
            outcome: _,
            reason: _,
            undone: _,
        } => turn.cancel_cause = cause_to_pb(*cause).into(),
        Ending::Failed(failure) => turn.failure = Some(failure::to_pb(failure)),
    }
    turn.encode_to_vec()
}

/// Sets the end and the result of a turn in a response. Empty `bytes` mean that the turn is live; nothing is set.
pub fn outcome_into_pb(bytes: &[u8], turn: &mut pb::Turn) -> Result<(), DecodeError> {
    if bytes.is_empty() {
        return Ok(());
    }
    let pb::Turn {
        turn_id: _,
        session_id: _,
        request_id: _,
        state: _,
        model: _,
        limits: _,
        create_time: _,
        end_time: _,
        first_seq: _,
        last_seq: _,
        pending_calls: _,
        result,
        completion_reason,
        cancel_cause,
        failure,
        pending_approvals: _,
    } = read("turn outcome", bytes)?;
    // The turn's own totals take precedence: the outcome was encoded without a compaction that ended during the last
    // call.
    let spent = turn.result.take().and_then(|so_far| so_far.total_usage);
    turn.result = result.map(|result| pb::TurnResult {
        total_usage: spent.or(result.total_usage),
        ..result
    });
    turn.completion_reason = completion_reason;
    turn.cancel_cause = cancel_cause;
    turn.failure = failure;
    Ok(())
}

/// Converts the result of a turn. `queued_message_ids` stays empty; the queue is read separately.
pub fn result_to_pb(result: &TurnResult) -> pb::TurnResult {
    let TurnResult {
        step_count,
        final_message,
        finish,
        last_step_usage,
        total_usage,
        elapsed,
    } = result;
    pb::TurnResult {
        step_count: signed(*step_count),
        final_message_id: final_message
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        finish_reason: finish
            .map_or(pb::FinishReason::Unspecified, response::finish_to_pb)
            .into(),
        last_step_usage: last_step_usage.as_ref().map(usage::to_pb),
        total_usage: Some(usage::totals_to_pb(total_usage)),
        elapsed: Some(time::duration_to_pb(*elapsed)),
        queued_message_ids: Vec::new(),
    }
}

/// Converts the calls that the host must act on: those that wait for a result, and those that wait for an approval.
pub fn pending_to_pb<'a>(
    pending: impl IntoIterator<Item = &'a PendingCall>,
) -> (Vec<pb::PendingCall>, Vec<pb::PendingApproval>) {
    let mut calls = Vec::new();
    let mut approvals = Vec::new();
    for PendingCall {
        call,
        deadline,
        waits_for,
        executor,
    } in pending
    {
        let call = Some(part::call_to_pb(call));
        let deadline = Some(time::timestamp_to_pb(*deadline));
        match waits_for {
            WaitsFor::Result { edited } => calls.push(pb::PendingCall {
                call,
                executor: super::tools::executor_to_pb(*executor).into(),
                deadline,
                arguments_edited: *edited,
            }),
            WaitsFor::Approval => approvals.push(pb::PendingApproval { call, deadline }),
        }
    }
    (calls, approvals)
}

/// Converts the state of a turn.
pub fn state_to_pb(state: TurnState) -> pb::TurnState {
    match state {
        TurnState::Running => pb::TurnState::Running,
        TurnState::AwaitingTools => pb::TurnState::AwaitingTools,
        TurnState::Completed => pb::TurnState::Completed,
        TurnState::Cancelled => pb::TurnState::Cancelled,
        TurnState::Failed => pb::TurnState::Failed,
    }
}

/// Converts the reason why a completed turn stopped.
pub fn completion_to_pb(reason: CompletionReason) -> pb::CompletionReason {
    match reason {
        CompletionReason::Stop => pb::CompletionReason::Stop,
        CompletionReason::MaxSteps => pb::CompletionReason::MaxSteps,
        CompletionReason::Length => pb::CompletionReason::Length,
        CompletionReason::ContentFilter => pb::CompletionReason::ContentFilter,
        CompletionReason::Budget => pb::CompletionReason::Budget,
        CompletionReason::Deadline => pb::CompletionReason::Deadline,
        CompletionReason::Empty => pb::CompletionReason::Empty,
    }
}

/// Converts the cause of a cancel.
pub fn cause_to_pb(cause: CancelCause) -> pb::CancelCause {
    match cause {
        CancelCause::Requested => pb::CancelCause::Requested,
        CancelCause::Interrupted => pb::CancelCause::Interrupted,
        CancelCause::Disconnected => pb::CancelCause::Disconnected,
        CancelCause::SessionDeleted => pb::CancelCause::SessionDeleted,
    }
}

/// Converts what a turn was doing when it was cancelled.
pub fn cancel_outcome_to_pb(outcome: CancelOutcome) -> pb::CancelOutcome {
    match outcome {
        CancelOutcome::None => pb::CancelOutcome::None,
        CancelOutcome::PartialAssistant => pb::CancelOutcome::PartialAssistant,
        CancelOutcome::ToolsInProgress => pb::CancelOutcome::ToolsInProgress,
        CancelOutcome::Unknown => pb::CancelOutcome::Unspecified,
    }
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
            prop_assert_eq!(turn.failure, Some(failure::to_pb(&failure)));
            prop_assert_eq!(turn.result, Some(result_to_pb(&result)));
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
            let request = TurnRequest {
                tools: tools.clone(),
                ..TurnRequest::default()
            };
            assert_eq!(
                decode_request(&encode_request(&request)).unwrap().tools,
                tools
            );
        };
        check(None);
        check(Some(ToolSet::default()));
        assert_eq!(encode_request(&TurnRequest::default()), Vec::<u8>::new());
    }

    #[test]
    fn every_ending_is_stored_distinctly() {
        let result = TurnResult::default();
        let turn = outcome_of(&Ending::Completed(CompletionReason::Budget), &result);
        assert_eq!(
            (turn.completion_reason(), turn.cancel_cause),
            (pb::CompletionReason::Budget, 0)
        );
        let cancelled = Ending::Cancelled {
            cause: CancelCause::Requested,
            outcome: CancelOutcome::ToolsInProgress,
            reason: "enough".to_owned(),
            undone: None,
        };
        let turn = outcome_of(&cancelled, &result);
        assert_eq!(
            (turn.completion_reason, turn.cancel_cause()),
            (0, pb::CancelCause::Requested)
        );
    }

    #[test]
    fn a_live_turn_is_left_as_it_is() {
        let mut turn = pb::Turn {
            result: Some(pb::TurnResult::default()),
            ..pb::Turn::default()
        };
        outcome_into_pb(&[], &mut turn).unwrap();
        assert_eq!(turn.result, Some(pb::TurnResult::default()));
    }
}
