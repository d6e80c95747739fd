//! The stored form of events. Content that has separate tables is referred to, not repeated.

use std::time::Duration;

use prost::Message;

use crate::{
    codec::{
        compaction,
        field::{Field, choices, messages},
        time::duration_to_pb,
    },
    model::{
        AppliedMessage, CallId, Compaction, DropReason, Ending, MessageId, Payload, ToolCall, ToolExecutor, TurnResult,
        Undone,
        event::{
            CallCancelReason, ModelFallback, ModelSwitched, StepStarted, TurnRetrying, TurnStarted, UnsupportedPart,
            UnsupportedSetting, UsageRecorded,
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

choices! {
    CallCancelReason = ToolCallCancelReason { TurnCancelled, TurnEnded, Incomplete, UnknownTool }
}

messages! {
    TurnStarted = TurnStarted {
        request = request_id,
        model,
        limits,
        tool_names,
        input = input_message_id,
    }
    StepStarted = StepStarted {
        model,
        revision = etag,
        context = context_tokens,
        window = context_window,
        reserve = output_reserve,
    }
    UsageRecorded = UsageRecorded {
        purpose,
        model,
        usage,
        estimate,
        ratio = calibration_ratio,
        message = message_id,
        compaction = compaction_id,
    }
    TurnRetrying = TurnRetrying {
        failure,
        next_attempt,
        delay,
        voided = voided_message_id,
    }
    ModelSwitched = ModelSwitched {
        from = from_model,
        to = to_model,
        revision = etag,
        generation via unless_default,
        _ = messages_retained,
    }
    ModelFallback = ModelFallback {
        from = from_model,
        to = to_model,
        reason,
        window = context_window,
        reserve = output_reserve,
    }
}

/// Encodes an event for storage.
pub fn encode(payload: &Payload) -> EncodedEvent {
    match payload {
        Payload::TurnStarted(it) => member::<pb::TurnStarted>(kind::TURN_STARTED, it),
        Payload::StepStarted(it) => {
            EncodedEvent { refs: vec![it.revision.to_string()], ..member::<pb::StepStarted>(kind::STEP_STARTED, it) }
        }
        Payload::MessageCommitted { message } => reference(kind::MESSAGE_COMMITTED, message.as_str()),
        Payload::ToolCallRequested { call, timeout, edited, executor } => EncodedEvent {
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
        Payload::UsageRecorded(it) => member::<pb::UsageRecorded>(kind::USAGE_RECORDED, it),
        Payload::UnsupportedSetting(it) => encoded(kind::UNSUPPORTED_INPUT, &unsupported_setting(it)),
        Payload::UnsupportedPart(it) => encoded(kind::UNSUPPORTED_INPUT, &unsupported_part(it)),
        Payload::TurnRetrying(it) => member::<pb::TurnRetrying>(kind::TURN_RETRYING, it),
        Payload::ModelSwitched(it) => member::<pb::ModelSwitched>(kind::MODEL_SWITCHED, it),
        Payload::ModelFallback(it) => member::<pb::ModelFallback>(kind::MODEL_FALLBACK, it),
        Payload::SessionUpdated { revision, paths } => {
            encoded(kind::SESSION_UPDATED, &session_updated(*revision, paths))
        }
        Payload::ContextPruned { report } => {
            let report = report.to_field();
            encoded(kind::CONTEXT_PRUNED, &pb::ContextPruned { report })
        }
        Payload::ContextRestored { restored } => member::<pb::ContextRestored>(kind::CONTEXT_RESTORED, restored),
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
    pb::ToolCallCancelled { call_id: call.to_string(), tool_name: name.to_owned(), reason: reason.to_field() }
}

fn session_updated(revision: i64, paths: &[String]) -> pb::SessionUpdated {
    pb::SessionUpdated { etag: revision.to_string(), changed_paths: paths.to_vec() }
}

fn messages_applied(message: &MessageId, taken: &[AppliedMessage]) -> pb::MessagesApplied {
    pb::MessagesApplied {
        message_id: message.to_string(),
        messages: taken.iter().map(Field::to_field).collect(),
        coalesced: taken.len() > 1,
    }
}

/// The payload of a `tool_call_cancelled`. Only the statement that writes it knows the call and the tool; they are
/// stored in the refs.
pub fn encode_call_cancelled(reason: CallCancelReason) -> Vec<u8> {
    pb::ToolCallCancelled { reason: reason.to_field(), ..pb::ToolCallCancelled::default() }.encode_to_vec()
}

/// The payload of a `queued_message_dropped` at the deletion of its session. Only the statement that writes it knows
/// the message.
pub fn encode_dropped_with_session() -> Vec<u8> {
    encode_dropped(DropReason::SessionDeleted)
}

/// The id of the message is stored in the refs.
fn encode_dropped(reason: DropReason) -> Vec<u8> {
    pb::QueuedMessageDropped { reason: reason.to_field(), ..pb::QueuedMessageDropped::default() }.encode_to_vec()
}

/// The payload of a `compaction_failed` for a compaction whose replica stopped. Only the statement that writes it knows
/// the compaction.
pub fn encode_compaction_lost() -> Vec<u8> {
    let lost = pb::Compaction {
        state: pb::CompactionState::Failed.into(),
        failure: compaction::replica_stopped_failure().to_field(),
        ..pb::Compaction::default()
    };
    pb::CompactionFailed { compaction: Some(lost) }.encode_to_vec()
}

fn action_required(results: &[CallId], approvals: &[CallId]) -> pb::ActionRequired {
    let ids = |calls: &[CallId]| calls.iter().map(ToString::to_string).collect();
    pb::ActionRequired { result_call_ids: ids(results), approval_call_ids: ids(approvals) }
}

/// All compaction events have the same form.
fn encode_compaction_event(kind: &'static str, compaction: &Compaction) -> EncodedEvent {
    let member = pb::CompactionStarted { compaction: Some(compaction.to_field()) };
    let id = compaction.id.as_ref().map(ToString::to_string);
    EncodedEvent { refs: id.into_iter().collect(), ..encoded(kind, &member) }
}

fn member<P: Message>(kind: &'static str, value: &impl Field<P>) -> EncodedEvent {
    encoded(kind, &value.to_field())
}

fn encoded(kind: &'static str, member: &impl Message) -> EncodedEvent {
    EncodedEvent { kind, refs: Vec::new(), payload: member.encode_to_vec() }
}

fn reference(kind: &'static str, id: &str) -> EncodedEvent {
    EncodedEvent { kind, refs: vec![id.to_owned()], payload: Vec::new() }
}

fn unsupported_setting(left_out: &UnsupportedSetting) -> pb::UnsupportedInput {
    let UnsupportedSetting { unsupported: Unsupported { setting, why }, provider, model } = left_out;
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
    let UnsupportedPart { left_out, provider, model } = left_out;
    let OmittedMedia { message, part, media_type, filename, why } = left_out;
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

/// A request for a tool call.
fn tool_call_requested(call: &ToolCall, timeout: Duration, edited: bool, executor: ToolExecutor) -> pb::PendingCall {
    pb::PendingCall {
        call: call.to_field(),
        executor: executor.to_field(),
        deadline: Some(relative(timeout)),
        arguments_edited: edited,
    }
}

/// A request for an approval.
fn approval_requested(call: &ToolCall, timeout: Duration) -> pb::PendingApproval {
    pb::PendingApproval { call: call.to_field(), deadline: Some(relative(timeout)) }
}

/// The stored form of a deadline. Only the statement knows when the request is made, so this is the timeout as a time
/// after 1970-01-01; the reader adds the event's time.
fn relative(timeout: Duration) -> prost_types::Timestamp {
    let prost_types::Duration { seconds, nanos } = duration_to_pb(timeout);
    prost_types::Timestamp { seconds, nanos }
}

/// The end of a turn: each kind of end has its own event kind.
fn encode_turn_ended(ending: &Ending, result: &TurnResult) -> EncodedEvent {
    let result = result.to_field();
    match ending {
        Ending::Completed(reason) => {
            encoded(kind::TURN_COMPLETED, &pb::TurnCompleted { reason: reason.to_field(), result })
        }
        Ending::Cancelled { cause, outcome, reason, undone } => {
            let mode = if undone.is_some() { pb::CancelMode::Rollback } else { pb::CancelMode::Stop };
            let Undone { messages, executed } = undone.clone().unwrap_or_default();
            encoded(
                kind::TURN_CANCELLED,
                &pb::TurnCancelled {
                    cause: cause.to_field(),
                    result,
                    outcome: outcome.to_field(),
                    mode: mode.into(),
                    reason: reason.clone(),
                    voided_message_ids: messages.into_iter().map(MessageId::into_string).collect(),
                    executed_call_ids: executed.into_iter().map(CallId::into_string).collect(),
                },
            )
        }
        Ending::Failed(failure) => encoded(kind::TURN_FAILED, &pb::TurnFailed { failure: failure.to_field(), result }),
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
        let oneof = event.oneof_decl.iter().position(|oneof| oneof.name() == "payload").unwrap();
        let fields: BTreeSet<_> = event
            .field
            .iter()
            .filter(|field| field.oneof_index.is_some_and(|index| usize::try_from(index) == Ok(oneof)))
            .map(|field| field.name())
            .collect();
        for payload in arbitrary::payloads() {
            let kind = encode(&payload).kind;
            assert!(fields.contains(kind), "{kind} is no field of Event.payload");
        }
    }

    #[test]
    fn event_payloads_refer_to_content_instead_of_copying_it() {
        let message = encode(&Payload::MessageCommitted { message: MessageId::new("m1") });
        assert_eq!((message.refs, message.payload), (vec!["m1".to_owned()], Vec::new()));
    }
}
