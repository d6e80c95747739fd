//! What a step writes: messages, results of calls that are not run, and what a call of the model cost.

use std::collections::{BTreeMap, BTreeSet};

use super::{answer::Timing, execute::stored};
use crate::{
    context::estimate,
    model::{
        CallId, Content, Message, MessageId, ModelResponse, Part, Payload, Role, TokenCount, ToolOutcome, ToolResult,
        Usage, UsagePurpose,
        event::{CallCancelReason, Estimate},
        message::StoredPart,
    },
    provider::{Finish, registry::Resolved},
    store::{NewMessage, turn::Synthetic},
};

/// What the model reads in place of a result that will not come.
const CLOSED_WORDS: &str = "[The call was closed without a result: the turn ended first.]";

pub(super) fn assistant(id: &MessageId, parts: Vec<Part>, response: ModelResponse) -> NewMessage {
    let parts = parts.into_iter().map(|part| stored(part, Role::Assistant)).collect();
    new_message(id.clone(), Role::Assistant, parts, Some(response))
}

pub(super) fn new_message(
    id: MessageId,
    role: Role,
    parts: Vec<StoredPart>,
    response: Option<ModelResponse>,
) -> NewMessage {
    NewMessage {
        id,
        role,
        parts,
        overhead: estimate::MESSAGE_OVERHEAD,
        pinned: false,
        metadata: BTreeMap::new(),
        response,
        queued: Vec::new(),
    }
}

pub(super) fn response(model: &Resolved, finish: &Finish, timing: Timing) -> ModelResponse {
    ModelResponse {
        provider: model.provider_name.clone(),
        model: model.reference.clone(),
        provider_model: finish.provider_model.clone(),
        provider_response_id: finish.response_id.clone(),
        finish: finish.reason,
        provider_finish: finish.provider_reason.clone(),
        usage: finish.usage.clone(),
        failure: None,
        time_to_first_token: timing.first,
        elapsed: timing.total,
    }
}

/// The size of a message.
pub(super) fn message_tokens(message: &NewMessage) -> u32 {
    let parts = message.parts.iter().map(|part| part.size.tokens);
    parts.fold(message.overhead, u32::saturating_add)
}

/// The result of a call that is not run.
pub(super) fn not_run(call: CallId, name: String, reason: CallCancelReason) -> Part {
    let words = match reason {
        CallCancelReason::UnknownTool => format!("[There is no tool named {name}.]"),
        CallCancelReason::Incomplete => {
            "[The call was not run: it was not complete, or its arguments are not a JSON object.]".to_owned()
        }
        CallCancelReason::TurnCancelled | CallCancelReason::TurnEnded => CLOSED_WORDS.to_owned(),
    };
    let outcome = match reason {
        CallCancelReason::UnknownTool | CallCancelReason::Incomplete => ToolOutcome::Error,
        CallCancelReason::TurnCancelled | CallCancelReason::TurnEnded => ToolOutcome::Cancelled,
    };
    Part::new(Content::ToolResult(ToolResult { call, name, parts: vec![words.into()], outcome, truncation: None }))
}

pub(super) fn synthetic(reason: CallCancelReason) -> Synthetic<'static> {
    Synthetic {
        words: CLOSED_WORDS,
        tokens: estimate::text(CLOSED_WORDS),
        overhead: estimate::MESSAGE_OVERHEAD,
        reason,
    }
}

/// A call as it is accounted for; `usage` comes with the prediction that was made.
pub(super) fn usage_recorded(
    model: &Resolved,
    usage: Option<(&Usage, &TokenCount)>,
    message: Option<&MessageId>,
) -> Payload {
    if let Some((usage, predicted)) = usage {
        let error = i64::from(predicted.tokens) - i64::from(usage.input);
        tracing::info!(
            model = %model.reference, tokens.estimated = predicted.tokens, tokens.actual = usage.input, tokens.error = error,
            "a call of the model was measured"
        );
    }
    Payload::UsageRecorded {
        purpose: UsagePurpose::Turn,
        model: model.reference.clone(),
        usage: usage.map(|(usage, _)| usage.clone()),
        estimate: usage.map(|(usage, predicted)| Estimate {
            estimated: predicted.tokens,
            actual: usage.input,
            basis: predicted.basis,
        }),
        message: message.cloned(),
        compaction: None,
    }
}

/// A call of the host's own, as it is accounted for.
pub(super) fn usage_event(
    purpose: UsagePurpose,
    model: &str,
    usage: &Usage,
    estimate: Option<Estimate>,
    message: Option<&MessageId>,
) -> Payload {
    let (usage, message) = (Some(usage.clone()), message.cloned());
    Payload::UsageRecorded { purpose, model: model.to_owned(), usage, estimate, message, compaction: None }
}

/// The ids of all calls in these messages.
pub(super) fn call_ids(messages: &[Message]) -> BTreeSet<CallId> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts
        .filter_map(|part| match &part.part.content {
            Content::ToolCall(call) => Some(call.id.clone()),
            Content::Text(_)
            | Content::Reasoning { .. }
            | Content::ToolResult(_)
            | Content::Refusal(_)
            | Content::Media(_) => None,
        })
        .collect()
}
