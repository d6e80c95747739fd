//! The stored form of events. Content that has separate tables is referred to, not repeated.

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
        AppliedMessage, CallId, Compaction, DropReason, Ending, MessageId, Payload, ToolCall,
        ToolExecutor, TurnResult, Undone,
        event::{
            CallCancelReason, ModelFallback, ModelSwitched, StepStarted, TurnRetrying, TurnStarted,
            UnsupportedPart, UnsupportedSetting, UsageRecorded,
        },
        generation::Unsupported,
        media::{OmittedMedia, UNSUPPORTED_TEXT},
    },
    pb,
};

use super::kind;

/// The columns of an event that its writer knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedEvent {
    /// The name of the proto's oneof field.
    pub kind: &'static str,
    /// Ids of the content that the reader fills in.
    pub refs: Vec<String>,
    /// The encoded member of the oneof, without that content.
    pub payload: Vec<u8>,
}

/// Encodes an event for storage.
pub fn encode(payload: &Payload) -> EncodedEvent {
    match payload {
        Payload::TurnStarted(it) => encoded(kind::TURN_STARTED, &turn_started(it)),
        Payload::StepStarted(it) => EncodedEvent {
            refs: vec![it.revision.to_string()],
            ..encoded(kind::STEP_STARTED, &step_started(it))
        },
        Payload::MessageCommitted { message } => {
            reference(kind::MESSAGE_COMMITTED, message.as_str())
        }
        Payload::ToolCallRequested {
            call,
            timeout,
            edited,
            executor,
        } => EncodedEvent {
            payload: tool_call_requested(call, *timeout, *edited, *executor).encode_to_vec(),
            ..reference(kind::TOOL_CALL_REQUESTED, call.id.as_str())
        },
        Payload::ApprovalRequested { call, timeout } => EncodedEvent {
            payload: approval_requested(call, *timeout).encode_to_vec(),
            ..reference(kind::APPROVAL_REQUESTED, call.id.as_str())
        },
        Payload::ToolCallCompleted { call } => reference(kind::TOOL_CALL_COMPLETED, call.as_str()),
        Payload::ToolCallCancelled { call, name, reason } => {
            let cancelled = call_cancelled(call, name, *reason);
            encoded(kind::TOOL_CALL_CANCELLED, &cancelled)
        }
        Payload::ActionRequired { results, approvals } => {
            encoded(kind::ACTION_REQUIRED, &action_required(results, approvals))
        }
        Payload::UsageRecorded(it) => encoded(kind::USAGE_RECORDED, &usage_recorded(it)),
        Payload::UnsupportedSetting(it) => {
            encoded(kind::UNSUPPORTED_INPUT, &unsupported_setting(it))
        }
        Payload::UnsupportedPart(it) => encoded(kind::UNSUPPORTED_INPUT, &unsupported_part(it)),
        Payload::TurnRetrying(it) => encoded(kind::TURN_RETRYING, &turn_retrying(it)),
        Payload::ModelSwitched(it) => encoded(kind::MODEL_SWITCHED, &model_switched(it)),
        Payload::ModelFallback(it) => encoded(kind::MODEL_FALLBACK, &model_fallback(it)),
        Payload::SessionUpdated { revision, paths } => {
            encoded(kind::SESSION_UPDATED, &session_updated(*revision, paths))
        }
        Payload::ContextPruned { report } => {
            let report = Some(ledger::prune_report_to_pb(report));
            encoded(kind::CONTEXT_PRUNED, &pb::ContextPruned { report })
        }
        Payload::ContextRestored { restored } => {
            encoded(kind::CONTEXT_RESTORED, &ledger::restored_to_pb(restored))
        }
        Payload::CompactionStarted(it) => encode_compaction_event(kind::COMPACTION_STARTED, it),
        Payload::CompactionCompleted(it) => encode_compaction_event(kind::COMPACTION_COMPLETED, it),
        Payload::CompactionFailed(it) => encode_compaction_event(kind::COMPACTION_FAILED, it),
        Payload::CompactionReverted(it) => encode_compaction_event(kind::COMPACTION_REVERTED, it),
        Payload::MessagesApplied { message, taken } => EncodedEvent {
            refs: vec![message.to_string()],
            ..encoded(kind::MESSAGES_APPLIED, &messages_applied(message, taken))
        },
        Payload::QueuedMessageDropped { message, reason } => EncodedEvent {
            payload: encode_dropped(*reason),
            ..reference(kind::QUEUED_MESSAGE_DROPPED, message.as_str())
        },
        Payload::TurnEnded { ending, result } => encode_turn_ended(ending, result),
    }
}

fn call_cancelled(call: &CallId, name: &str, reason: CallCancelReason) -> pb::ToolCallCancelled {
    pb::ToolCallCancelled {
        call_id: call.to_string(),
        tool_name: name.to_owned(),
        reason: cancel_reason_to_pb(reason).into(),
    }
}

fn usage_recorded(recorded: &UsageRecorded) -> pb::UsageRecorded {
    let UsageRecorded {
        purpose,
        model,
        usage,
        estimate,
        ratio,
        message,
        compaction,
    } = recorded;
    pb::UsageRecorded {
        purpose: usage::purpose_to_pb(*purpose).into(),
        model: model.clone(),
        usage: usage.as_ref().map(usage::to_pb),
        estimate: estimate.as_ref().map(usage::estimate_to_pb),
        calibration_ratio: *ratio,
        message_id: id_or_empty(message.as_ref()),
        compaction_id: id_or_empty(compaction.as_ref()),
    }
}

/// An optional id for the proto, where empty means absent.
fn id_or_empty<T: ToString>(id: Option<&T>) -> String {
    id.map(T::to_string).unwrap_or_default()
}

fn session_updated(revision: i64, paths: &[String]) -> pb::SessionUpdated {
    pb::SessionUpdated {
        etag: revision.to_string(),
        changed_paths: paths.to_vec(),
    }
}

fn model_switched(switched: &ModelSwitched) -> pb::ModelSwitched {
    let ModelSwitched {
        from,
        to,
        revision,
        generation,
    } = switched;
    pb::ModelSwitched {
        from_model: from.clone(),
        to_model: to.clone(),
        etag: revision.to_string(),
        generation: generation::to_stored(generation),
        messages_retained: 0,
    }
}

fn model_fallback(fallback: &ModelFallback) -> pb::ModelFallback {
    let ModelFallback {
        from,
        to,
        reason,
        window,
        reserve,
    } = fallback;
    pb::ModelFallback {
        from_model: from.clone(),
        to_model: to.clone(),
        reason: failure::reason_to_pb(*reason).into(),
        context_window: signed(*window),
        output_reserve: signed(*reserve),
    }
}

fn messages_applied(message: &MessageId, taken: &[AppliedMessage]) -> pb::MessagesApplied {
    pb::MessagesApplied {
        message_id: message.to_string(),
        messages: taken.iter().map(applied::to_pb).collect(),
        coalesced: taken.len() > 1,
    }
}

/// The payload of a `tool_call_cancelled`. Only the statement that writes it knows the call and the tool; they are
/// stored in the refs.
pub fn encode_call_cancelled(reason: CallCancelReason) -> Vec<u8> {
    pb::ToolCallCancelled {
        reason: cancel_reason_to_pb(reason).into(),
        ..pb::ToolCallCancelled::default()
    }
    .encode_to_vec()
}

/// The payload of a `queued_message_dropped` at the deletion of its session. Only the statement that writes it knows
/// the message.
pub fn encode_dropped_with_session() -> Vec<u8> {
    encode_dropped(DropReason::SessionDeleted)
}

/// The id of the message is stored in the refs.
fn encode_dropped(reason: DropReason) -> Vec<u8> {
    let reason = queue::drop_reason_to_pb(reason).into();
    pb::QueuedMessageDropped {
        reason,
        ..pb::QueuedMessageDropped::default()
    }
    .encode_to_vec()
}

/// The payload of a `compaction_failed` for a compaction whose replica stopped. Only the statement that writes it knows
/// the compaction.
pub fn encode_compaction_lost() -> Vec<u8> {
    let lost = pb::Compaction {
        state: pb::CompactionState::Failed.into(),
        failure: Some(failure::to_pb(&compaction::replica_stopped_failure())),
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

/// All compaction events have the same form.
fn encode_compaction_event(kind: &'static str, compaction: &Compaction) -> EncodedEvent {
    let member = pb::CompactionStarted {
        compaction: Some(compaction::stored(compaction)),
    };
    let id = compaction.id.as_ref().map(ToString::to_string);
    EncodedEvent {
        refs: id.into_iter().collect(),
        ..encoded(kind, &member)
    }
}

fn encoded(kind: &'static str, member: &impl Message) -> EncodedEvent {
    EncodedEvent {
        kind,
        refs: Vec::new(),
        payload: member.encode_to_vec(),
    }
}

fn reference(kind: &'static str, id: &str) -> EncodedEvent {
    EncodedEvent {
        kind,
        refs: vec![id.to_owned()],
        payload: Vec::new(),
    }
}

fn turn_started(started: &TurnStarted) -> pb::TurnStarted {
    let TurnStarted {
        request,
        model,
        limits,
        tool_names,
        input,
    } = started;
    pb::TurnStarted {
        request_id: id_or_empty(request.as_ref()),
        model: model.clone(),
        limits: Some(limits::to_pb(limits)),
        tool_names: tool_names.clone(),
        input_message_id: id_or_empty(input.as_ref()),
    }
}

fn unsupported_setting(left_out: &UnsupportedSetting) -> pb::UnsupportedInput {
    let UnsupportedSetting {
        unsupported: Unsupported { setting, why },
        provider,
        model,
    } = left_out;
    pb::UnsupportedInput {
        part_index: -1,
        field: setting.path().to_owned(),
        provider: provider.clone(),
        model: model.clone(),
        errors: vec![why.clone()],
        ..pb::UnsupportedInput::default()
    }
}

fn unsupported_part(left_out: &UnsupportedPart) -> pb::UnsupportedInput {
    let UnsupportedPart {
        left_out,
        provider,
        model,
    } = left_out;
    let OmittedMedia {
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
        provider: provider.clone(),
        model: model.clone(),
        media_type: media_type.clone(),
        filename: filename.clone(),
        errors: vec![why.clone()],
        replacement: UNSUPPORTED_TEXT.to_owned(),
    }
}

fn step_started(started: &StepStarted) -> pb::StepStarted {
    let StepStarted {
        model,
        revision,
        context,
        window,
        reserve,
    } = started;
    pb::StepStarted {
        model: model.clone(),
        etag: revision.to_string(),
        context_tokens: Some(usage::count_to_pb(context)),
        context_window: signed(*window),
        output_reserve: signed(*reserve),
    }
}

/// A request for a tool call.
fn tool_call_requested(
    call: &ToolCall,
    timeout: Duration,
    edited: bool,
    executor: ToolExecutor,
) -> pb::PendingCall {
    pb::PendingCall {
        call: Some(part::call_to_pb(call)),
        executor: crate::codec::tools::executor_to_pb(executor).into(),
        deadline: Some(relative(timeout)),
        arguments_edited: edited,
    }
}

/// A request for an approval.
fn approval_requested(call: &ToolCall, timeout: Duration) -> pb::PendingApproval {
    pb::PendingApproval {
        call: Some(part::call_to_pb(call)),
        deadline: Some(relative(timeout)),
    }
}

/// The stored form of a deadline. Only the statement knows when the request is made, so this is the timeout as a time
/// after 1970-01-01; the reader adds the event's time.
fn relative(timeout: Duration) -> prost_types::Timestamp {
    let prost_types::Duration { seconds, nanos } = duration_to_pb(timeout);
    prost_types::Timestamp { seconds, nanos }
}

fn turn_retrying(retrying: &TurnRetrying) -> pb::TurnRetrying {
    let TurnRetrying {
        failure,
        next_attempt,
        delay,
        voided,
    } = retrying;
    pb::TurnRetrying {
        failure: Some(failure::to_pb(failure)),
        next_attempt: signed(*next_attempt),
        delay: Some(duration_to_pb(*delay)),
        voided_message_id: id_or_empty(voided.as_ref()),
    }
}

/// The end of a turn: each kind of end has its own event kind.
fn encode_turn_ended(ending: &Ending, result: &TurnResult) -> EncodedEvent {
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
    fn every_event_kind_is_a_field_of_the_proto_oneof() {
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
    fn event_payloads_refer_to_content_instead_of_copying_it() {
        let message = encode(&Payload::MessageCommitted {
            message: MessageId::new("m1"),
        });
        assert_eq!(
            (message.refs, message.payload),
            (vec!["m1".to_owned()], Vec::new())
        );
    }
}
