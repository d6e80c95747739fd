//! What happened, as it is stored: content that has its own tables is referred to, not repeated.

use std::time::Duration;

use prost::Message;

use crate::{
    codec::{
        applied, compaction, failure, generation, ledger, limits,
        number::signed,
        part, queue,
        time::duration_to_pb,
        turn::{cancel_outcome_to_pb, cause_to_pb, completion_to_pb, result_to_pb},
        usage,
    },
    model::{
        Applied, CallId, Compaction, DropReason, Ending, Failure, Generation, Limits, MessageId,
        Payload, RequestId, TokenCount, ToolCall, TurnResult, Undone,
        event::CallCancelReason,
        generation::Unsupported,
        media::{LeftOut, UNSUPPORTED_WORDS},
    },
    pb,
};

use super::kind;

/// The columns of an event that its writer knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The proto's oneof field.
    pub kind: &'static str,
    /// Ids that the reader needs to fill in content.
    pub refs: Vec<String>,
    /// The encoded member of the oneof, without that content.
    pub payload: Vec<u8>,
}

/// What happened, as it is stored.
pub fn encode(payload: &Payload) -> Encoded {
    match payload {
        Payload::TurnStarted {
            request,
            model,
            limits,
            tool_names,
            input,
        } => encoded(
            kind::TURN_STARTED,
            &turn_started(request.as_ref(), model, limits, tool_names, input.as_ref()),
        ),
        Payload::StepStarted {
            model,
            revision,
            context,
            window,
            reserve,
        } => Encoded {
            refs: vec![revision.to_string()],
            ..encoded(
                kind::STEP_STARTED,
                &step_started(model, *revision, context, (*window, *reserve)),
            )
        },
        Payload::MessageCommitted { message } => {
            reference(kind::MESSAGE_COMMITTED, message.as_str())
        }
        Payload::ToolCallRequested {
            call,
            timeout,
            edited,
        } => Encoded {
            payload: requested(call, *timeout, *edited).encode_to_vec(),
            ..reference(kind::TOOL_CALL_REQUESTED, call.id.as_str())
        },
        Payload::ApprovalRequested { call, timeout } => Encoded {
            payload: approval_requested(call, *timeout).encode_to_vec(),
            ..reference(kind::APPROVAL_REQUESTED, call.id.as_str())
        },
        Payload::ToolCallCompleted { call } => reference(kind::TOOL_CALL_COMPLETED, call.as_str()),
        Payload::ToolCallCancelled { call, name, reason } => encoded(
            kind::TOOL_CALL_CANCELLED,
            &pb::ToolCallCancelled {
                call_id: call.to_string(),
                tool_name: name.clone(),
                reason: cancel_reason_to_pb(*reason).into(),
            },
        ),
        Payload::ActionRequired { results, approvals } => {
            encoded(kind::ACTION_REQUIRED, &action_required(results, approvals))
        }
        Payload::UsageRecorded {
            purpose,
            model,
            usage,
            estimate,
            ratio,
            message,
            compaction,
        } => encoded(
            kind::USAGE_RECORDED,
            &pb::UsageRecorded {
                purpose: usage::purpose_to_pb(*purpose).into(),
                model: model.clone(),
                usage: usage.as_ref().map(usage::to_pb),
                estimate: estimate.as_ref().map(usage::estimate_to_pb),
                calibration_ratio: *ratio,
                message_id: message
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
                compaction_id: compaction
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
            },
        ),
        Payload::UnsupportedSetting {
            unsupported,
            provider,
            model,
        } => encoded(
            kind::UNSUPPORTED_INPUT,
            &unsupported_setting(unsupported, provider, model),
        ),
        Payload::UnsupportedPart {
            left_out,
            provider,
            model,
        } => encoded(
            kind::UNSUPPORTED_INPUT,
            &unsupported_part(left_out, provider, model),
        ),
        Payload::TurnRetrying {
            failure,
            next_attempt,
            delay,
            voided,
        } => encoded(
            kind::TURN_RETRYING,
            &retrying(failure, *next_attempt, *delay, voided.as_ref()),
        ),
        Payload::ModelSwitched {
            from,
            to,
            revision,
            generation,
        } => encoded(
            kind::MODEL_SWITCHED,
            &model_switched(from, to, *revision, generation),
        ),
        Payload::SessionUpdated { revision, paths } => encoded(
            kind::SESSION_UPDATED,
            &pb::SessionUpdated {
                etag: revision.to_string(),
                changed_paths: paths.clone(),
            },
        ),
        Payload::ContextPruned { report } => encoded(
            kind::CONTEXT_PRUNED,
            &pb::ContextPruned {
                report: Some(ledger::pruned_to_pb(report)),
            },
        ),
        Payload::ContextRestored { restored } => {
            encoded(kind::CONTEXT_RESTORED, &ledger::restored_to_pb(restored))
        }
        Payload::CompactionStarted(it) => about_compaction(kind::COMPACTION_STARTED, it),
        Payload::CompactionCompleted(it) => about_compaction(kind::COMPACTION_COMPLETED, it),
        Payload::CompactionFailed(it) => about_compaction(kind::COMPACTION_FAILED, it),
        Payload::CompactionReverted(it) => about_compaction(kind::COMPACTION_REVERTED, it),
        Payload::MessagesApplied { message, taken } => Encoded {
            refs: vec![message.to_string()],
            ..encoded(kind::MESSAGES_APPLIED, &messages_applied(message, taken))
        },
        Payload::QueuedMessageDropped { message, reason } => Encoded {
            payload: dropped(*reason),
            ..reference(kind::QUEUED_MESSAGE_DROPPED, message.as_str())
        },
        Payload::TurnEnded { ending, result } => ended(ending, result),
    }
}

fn model_switched(
    from: &str,
    to: &str,
    revision: i64,
    generation: &Generation,
) -> pb::ModelSwitched {
    pb::ModelSwitched {
        from_model: from.to_owned(),
        to_model: to.to_owned(),
        etag: revision.to_string(),
        generation: generation::to_stored(generation),
        messages_retained: 0,
    }
}

fn messages_applied(message: &MessageId, taken: &[Applied]) -> pb::MessagesApplied {
    pb::MessagesApplied {
        message_id: message.to_string(),
        messages: taken.iter().map(applied::to_pb).collect(),
        coalesced: taken.len() > 1,
    }
}

/// The payload of a `tool_call_cancelled` whose call and tool only the writing statement knows:
/// they stand in the refs.
pub fn encode_call_cancelled(reason: CallCancelReason) -> Vec<u8> {
    pb::ToolCallCancelled {
        reason: cancel_reason_to_pb(reason).into(),
        ..pb::ToolCallCancelled::default()
    }
    .encode_to_vec()
}

/// The payload of a `queued_message_dropped` because of its session's end. Which message it is only
/// the writing statement knows.
pub fn encode_dropped_with_session() -> Vec<u8> {
    dropped(DropReason::SessionDeleted)
}

/// Which message it is stands in the refs.
fn dropped(reason: DropReason) -> Vec<u8> {
    let reason = queue::drop_reason_to_pb(reason).into();
    pb::QueuedMessageDropped {
        reason,
        ..pb::QueuedMessageDropped::default()
    }
    .encode_to_vec()
}

/// The payload of a `compaction_failed` of a compaction whose replica stopped. Only the writing
/// statement knows which one it is.
pub fn encode_compaction_lost() -> Vec<u8> {
    let lost = pb::Compaction {
        state: pb::CompactionState::Failed.into(),
        failure: Some(failure::to_pb(&compaction::lost())),
        ..pb::Compaction::default()
    };
    pb::CompactionFailed {
        compaction: Some(lost),
    }
    .encode_to_vec()
}

fn action_required(results: &[CallId], approvals: &[CallId]) -> pb::ActionRequired {
    let ids = |calls: &[CallId]| calls.iter().map(ToString::to_string).collect();
    pb::ActionRequired {
        result_call_ids: ids(results),
        approval_call_ids: ids(approvals),
    }
}

/// All events about compactions have one form.
fn about_compaction(kind: &'static str, compaction: &Compaction) -> Encoded {
    let member = pb::CompactionStarted {
        compaction: Some(compaction::stored(compaction)),
    };
    let id = compaction.id.as_ref().map(ToString::to_string);
    Encoded {
        refs: id.into_iter().collect(),
        ..encoded(kind, &member)
    }
}

fn encoded(kind: &'static str, member: &impl Message) -> Encoded {
    Encoded {
        kind,
        refs: Vec::new(),
        payload: member.encode_to_vec(),
    }
}

fn reference(kind: &'static str, id: &str) -> Encoded {
    Encoded {
        kind,
        refs: vec![id.to_owned()],
        payload: Vec::new(),
    }
}

fn turn_started(
    request: Option<&RequestId>,
    model: &str,
    limits: &Limits,
    tool_names: &[String],
    input: Option<&MessageId>,
) -> pb::TurnStarted {
    pb::TurnStarted {
        request_id: request.map(ToString::to_string).unwrap_or_default(),
        model: model.to_owned(),
        limits: Some(limits::to_pb(limits)),
        tool_names: tool_names.to_vec(),
        input_message_id: input.map(ToString::to_string).unwrap_or_default(),
    }
}

fn unsupported_setting(
    unsupported: &Unsupported,
    provider: &str,
    model: &str,
) -> pb::UnsupportedInput {
    let Unsupported { setting, why } = unsupported;
    pb::UnsupportedInput {
        part_index: -1,
        field: setting.path().to_owned(),
        provider: provider.to_owned(),
        model: model.to_owned(),
        errors: vec![why.clone()],
        ..pb::UnsupportedInput::default()
    }
}

fn unsupported_part(left_out: &LeftOut, provider: &str, model: &str) -> pb::UnsupportedInput {
    let LeftOut {
        message,
        part,
        media_type,
        filename,
        why,
    } = left_out;
    pb::UnsupportedInput {
        message_id: message.to_string(),
        part_index: i32::try_from(*part).unwrap_or(i32::MAX),
        field: String::new(),
        provider: provider.to_owned(),
        model: model.to_owned(),
        media_type: media_type.clone(),
        filename: filename.clone(),
        errors: vec![why.clone()],
        replacement: UNSUPPORTED_WORDS.to_owned(),
    }
}

fn step_started(
    model: &str,
    revision: i64,
    context: &TokenCount,
    (window, reserve): (u32, u32),
) -> pb::StepStarted {
    pb::StepStarted {
        model: model.to_owned(),
        etag: revision.to_string(),
        context_tokens: Some(usage::count_to_pb(context)),
        context_window: signed(window),
        output_reserve: signed(reserve),
    }
}

/// A request for a tool.
fn requested(call: &ToolCall, timeout: Duration, edited: bool) -> pb::PendingCall {
    pb::PendingCall {
        call: Some(part::call_to_pb(call)),
        executor: pb::ToolExecutor::Host.into(),
        deadline: Some(relative(timeout)),
        arguments_edited: edited,
    }
}

/// A question to a person.
fn approval_requested(call: &ToolCall, timeout: Duration) -> pb::PendingApproval {
    pb::PendingApproval {
        call: Some(part::call_to_pb(call)),
        deadline: Some(relative(timeout)),
    }
}

/// A deadline as it is stored. Only the statement knows when the request is made, so it is the
/// timeout, counted from 1970, and the reader adds the event's time.
fn relative(timeout: Duration) -> prost_types::Timestamp {
    let prost_types::Duration { seconds, nanos } = duration_to_pb(timeout);
    prost_types::Timestamp { seconds, nanos }
}

fn retrying(
    failure: &Failure,
    next_attempt: u32,
    delay: Duration,
    voided: Option<&MessageId>,
) -> pb::TurnRetrying {
    pb::TurnRetrying {
        failure: Some(failure::to_pb(failure)),
        next_attempt: signed(next_attempt),
        delay: Some(duration_to_pb(delay)),
        voided_message_id: voided.map(ToString::to_string).unwrap_or_default(),
    }
}

/// The end of a turn: one kind for each way.
fn ended(ending: &Ending, result: &TurnResult) -> Encoded {
    let result = Some(result_to_pb(result));
    match ending {
        Ending::Completed(reason) => encoded(
            kind::TURN_COMPLETED,
            &pb::TurnCompleted {
                reason: completion_to_pb(*reason).into(),
                result,
            },
        ),
        Ending::Cancelled {
            cause,
            outcome,
            reason,
            undone,
        } => {
            let mode = if undone.is_some() {
                pb::CancelMode::Rollback
            } else {
                pb::CancelMode::Stop
            };
            let Undone { messages, executed } = undone.clone().unwrap_or_default();
            encoded(
                kind::TURN_CANCELLED,
                &pb::TurnCancelled {
                    cause: cause_to_pb(*cause).into(),
                    result,
                    outcome: cancel_outcome_to_pb(*outcome).into(),
                    mode: mode.into(),
                    reason: reason.clone(),
                    voided_message_ids: messages.into_iter().map(MessageId::into_string).collect(),
                    executed_call_ids: executed.into_iter().map(CallId::into_string).collect(),
                },
            )
        }
        Ending::Failed(failure) => encoded(
            kind::TURN_FAILED,
            &pb::TurnFailed {
                failure: Some(failure::to_pb(failure)),
                result,
            },
        ),
    }
}

fn cancel_reason_to_pb(reason: CallCancelReason) -> pb::ToolCallCancelReason {
    match reason {
        CallCancelReason::TurnCancelled => pb::ToolCallCancelReason::TurnCancelled,
        CallCancelReason::TurnEnded => pb::ToolCallCancelReason::TurnEnded,
        CallCancelReason::Incomplete => pb::ToolCallCancelReason::Incomplete,
        CallCancelReason::UnknownTool => pb::ToolCallCancelReason::UnknownTool,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::codec::arbitrary;

    #[test]
    fn each_kind_is_a_field_of_the_protos_oneof() {
        let descriptors = prost_types::FileDescriptorSet::decode(pb::DESCRIPTOR_SET).unwrap();
        let event = descriptors
            .file
            .iter()
            .filter(|file| file.package() == "contextd.v1")
            .flat_map(|file| &file.message_type)
            .find(|message| message.name() == "Event")
            .unwrap();
        let oneof = event
            .oneof_decl
            .iter()
            .position(|oneof| oneof.name() == "payload")
            .unwrap();
        let fields: BTreeSet<_> = event
            .field
            .iter()
            .filter(|field| {
                field
                    .oneof_index
                    .is_some_and(|index| usize::try_from(index) == Ok(oneof))
            })
            .map(|field| field.name())
            .collect();
        for payload in arbitrary::payloads() {
            let kind = encode(&payload).kind;
            assert!(fields.contains(kind), "{kind} is no field of Event.payload");
        }
    }

    #[test]
    fn content_is_referred_to() {
        let message = encode(&Payload::MessageCommitted {
            message: MessageId::new("m1"),
        });
        assert_eq!(
            (message.refs, message.payload),
            (vec!["m1".to_owned()], Vec::new())
        );
    }
}
