//! The stored form of events. Content that has separate tables is referred to, not repeated.

use std::time::Duration;

use prost::Message;

use crate::{
    codec::{
        compaction::replica_stopped_failure,
        field::{Field as _, choices, messages},
    },
    model::{
        Compaction, DropReason, Ending, Payload, TurnResult, Undone,
        event::{
            CallCancelReason, ModelFallback, ModelSwitched, StepStarted, TurnRetrying, TurnStarted, UnsupportedPart,
            UnsupportedSetting, UsageRecorded,
        },
        generation::Unsupported,
        media::{OmittedMedia, UNSUPPORTED_TEXT},
    },
    pb::{self, event::Payload as Stored},
};

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

/// Encodes an event for storage. What only its statement knows, and content with separate tables, is left out.
pub fn encode(payload: &Payload) -> EncodedEvent {
    let (stored, refs) = match payload {
        Payload::TurnStarted(it) => (Stored::TurnStarted(it.to_field()), vec![]),
        Payload::StepStarted(it) => (Stored::StepStarted(it.to_field()), vec![it.revision.to_string()]),
        Payload::MessageCommitted { message } => {
            (Stored::MessageCommitted(pb::MessageCommitted::default()), vec![message.to_string()])
        }
        Payload::ToolCallRequested { call, timeout, edited, executor } => {
            let request = pb::PendingCall {
                call: call.to_field(),
                executor: executor.to_field(),
                deadline: Some(relative(*timeout)),
                arguments_edited: *edited,
            };
            (Stored::ToolCallRequested(request), vec![call.id.to_string()])
        }
        Payload::ApprovalRequested { call, timeout } => {
            let request = pb::PendingApproval { call: call.to_field(), deadline: Some(relative(*timeout)) };
            (Stored::ApprovalRequested(request), vec![call.id.to_string()])
        }
        Payload::ToolCallCompleted { call } => {
            (Stored::ToolCallCompleted(pb::ToolCallCompleted::default()), vec![call.to_string()])
        }
        Payload::ToolCallCancelled { call, name, reason } => {
            let (call_id, tool_name) = (call.to_string(), name.clone());
            (Stored::ToolCallCancelled(pb::ToolCallCancelled { call_id, tool_name, reason: reason.to_field() }), vec![])
        }
        Payload::ActionRequired { results, approvals } => {
            let (result_call_ids, approval_call_ids) = (results.to_field(), approvals.to_field());
            (Stored::ActionRequired(pb::ActionRequired { result_call_ids, approval_call_ids }), vec![])
        }
        Payload::UsageRecorded(it) => (Stored::UsageRecorded(it.to_field()), vec![]),
        Payload::UnsupportedSetting(it) => (Stored::UnsupportedInput(unsupported_setting(it)), vec![]),
        Payload::UnsupportedPart(it) => (Stored::UnsupportedInput(unsupported_part(it)), vec![]),
        Payload::TurnRetrying(it) => (Stored::TurnRetrying(it.to_field()), vec![]),
        Payload::ModelSwitched(it) => (Stored::ModelSwitched(it.to_field()), vec![]),
        Payload::ModelFallback(it) => (Stored::ModelFallback(it.to_field()), vec![]),
        Payload::SessionUpdated { revision, paths } => {
            let updated = pb::SessionUpdated { etag: revision.to_field(), changed_paths: paths.clone() };
            (Stored::SessionUpdated(updated), vec![])
        }
        Payload::ContextPruned { report } => {
            (Stored::ContextPruned(pb::ContextPruned { report: report.to_field() }), vec![])
        }
        Payload::ContextRestored { restored } => (Stored::ContextRestored(restored.to_field()), vec![]),
        Payload::CompactionStarted(it) => {
            (Stored::CompactionStarted(pb::CompactionStarted { compaction: compaction(it) }), compaction_refs(it))
        }
        Payload::CompactionCompleted(it) => {
            (Stored::CompactionCompleted(pb::CompactionCompleted { compaction: compaction(it) }), compaction_refs(it))
        }
        Payload::CompactionFailed(it) => {
            (Stored::CompactionFailed(pb::CompactionFailed { compaction: compaction(it) }), compaction_refs(it))
        }
        Payload::CompactionReverted(it) => {
            (Stored::CompactionReverted(pb::CompactionReverted { compaction: compaction(it) }), compaction_refs(it))
        }
        Payload::MessagesApplied { message, taken } => {
            let (message_id, messages, coalesced) = (message.to_string(), taken.to_field(), taken.len() > 1);
            (
                Stored::MessagesApplied(pb::MessagesApplied { message_id, messages, coalesced }),
                vec![message.to_string()],
            )
        }
        Payload::QueuedMessageDropped { message, reason } => {
            (Stored::QueuedMessageDropped(dropped(*reason)), vec![message.to_string()])
        }
        Payload::TurnEnded { ending, result } => (turn_ended(ending, result), vec![]),
    };
    EncodedEvent { kind: stored.kind(), refs, payload: stored.encode_message() }
}

/// The payload of a `tool_call_cancelled`. Only the statement that writes it knows the call and the tool; they are
/// stored in the refs.
pub fn encode_call_cancelled(reason: CallCancelReason) -> Vec<u8> {
    pb::ToolCallCancelled { reason: reason.to_field(), ..pb::ToolCallCancelled::default() }.encode_to_vec()
}

/// The payload of a `queued_message_dropped` at the deletion of its session. Only the statement that writes it knows
/// the message.
pub fn encode_dropped_with_session() -> Vec<u8> {
    dropped(DropReason::SessionDeleted).encode_to_vec()
}

/// The id of the message is stored in the refs.
fn dropped(reason: DropReason) -> pb::QueuedMessageDropped {
    pb::QueuedMessageDropped { reason: reason.to_field(), ..pb::QueuedMessageDropped::default() }
}

/// The payload of a `compaction_failed` for a compaction whose replica stopped. Only the statement that writes it knows
/// the compaction.
pub fn encode_compaction_lost() -> Vec<u8> {
    let lost = pb::Compaction {
        state: pb::CompactionState::Failed.into(),
        failure: replica_stopped_failure().to_field(),
        ..pb::Compaction::default()
    };
    pb::CompactionFailed { compaction: Some(lost) }.encode_to_vec()
}

fn compaction(compaction: &Compaction) -> Option<pb::Compaction> {
    compaction.to_field()
}

fn compaction_refs(compaction: &Compaction) -> Vec<String> {
    compaction.id.iter().map(ToString::to_string).collect()
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

/// The stored form of a deadline. Only the statement knows when the request is made, so this is the timeout as a time
/// after 1970-01-01; the reader adds the event's time.
fn relative(timeout: Duration) -> prost_types::Timestamp {
    let prost_types::Duration { seconds, nanos } = timeout.to_field();
    prost_types::Timestamp { seconds, nanos }
}

/// The end of a turn: each kind of end has its own event kind.
fn turn_ended(ending: &Ending, result: &TurnResult) -> Stored {
    let result = result.to_field();
    match ending {
        Ending::Completed(reason) => Stored::TurnCompleted(pb::TurnCompleted { reason: reason.to_field(), result }),
        Ending::Cancelled { cause, outcome, reason, undone } => {
            let mode = if undone.is_some() { pb::CancelMode::Rollback } else { pb::CancelMode::Stop };
            let Undone { messages, executed } = undone.clone().unwrap_or_default();
            Stored::TurnCancelled(pb::TurnCancelled {
                cause: cause.to_field(),
                result,
                outcome: outcome.to_field(),
                mode: mode.into(),
                reason: reason.clone(),
                voided_message_ids: messages.to_field(),
                executed_call_ids: executed.to_field(),
            })
        }
        Ending::Failed(failure) => Stored::TurnFailed(pb::TurnFailed { failure: failure.to_field(), result }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{codec::arbitrary, model::MessageId};

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
