//! Builds the rows to write: messages with their sizes, and the usage of model calls.

use std::collections::{BTreeMap, BTreeSet};

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::{
    context::{estimate, estimator::Estimator, sent_prompt::SentPrompt},
    model::{
        CallId, Category, Content, InputMessage, Message, MessageId, ModelResponse, Part, PartSize, Payload, Role, Seq,
        TokenCount, Usage, UsagePurpose,
        event::{Estimate, UsageRecorded},
        message::StoredPart,
    },
    session::rows::NewMessage,
};

/// Counting texts of this many bytes takes a few milliseconds.
pub(in crate::turn) const LONG_TEXT: usize = 32 << 10;

/// A part of a host's message with its size. Pinned parts have their own category.
pub(in crate::turn) fn host_part(part: Part, role: Role, pinned: bool, estimator: Estimator) -> StoredPart {
    let mut stored = stored(part, role, estimator);
    if pinned {
        stored.size.category = Category::Pinned;
    }
    stored
}

pub(in crate::turn) fn stored(part: Part, role: Role, estimator: Estimator) -> StoredPart {
    let size = counted(&part, role, estimator);
    StoredPart { part, size, estimator: estimator.name().into_owned(), pruned: None }
}

/// The size of a part.
pub(in crate::turn) fn counted(part: &Part, role: Role, estimator: Estimator) -> PartSize {
    let bytes = match &part.content {
        Content::Text(text) | Content::Reasoning { text, redacted: _ } | Content::Refusal(text) => text.len(),
        Content::ToolCall(call) => call.arguments.len(),
        Content::ToolResult(result) => result.texts().map(str::len).sum(),
        Content::ProviderItem(item) => item.json.len(),
        Content::Media(_) | Content::Unknown(_) => 0,
    };
    count_without_blocking(bytes, estimator, || estimator.part(part, role))
}

/// Runs `count`, which counts texts of `bytes` bytes in total. If they are long, the other tasks of this thread
/// continue on another one.
pub(in crate::turn) fn count_without_blocking<T>(bytes: usize, estimator: Estimator, count: impl FnOnce() -> T) -> T {
    let others_run = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    if others_run && (bytes >= LONG_TEXT || !estimator.is_loaded()) {
        tokio::task::block_in_place(count)
    } else {
        count()
    }
}

/// Tokens of a message in addition to its parts.
pub(in crate::turn) fn overhead(role: Role, parts: &[StoredPart], estimator: Estimator) -> u32 {
    estimator.overhead(role, parts.iter().map(|stored| &stored.part))
}

pub(in crate::turn) fn assistant(
    id: &MessageId,
    parts: Vec<Part>,
    response: ModelResponse,
    estimator: Estimator,
) -> NewMessage {
    let parts = parts.into_iter().map(|part| stored(part, Role::Assistant, estimator)).collect();
    new_message(id.clone(), Role::Assistant, parts, Some(response), estimator)
}

/// A host's message, ready to be stored.
pub(in crate::turn) fn host_message(id: MessageId, input: InputMessage, estimator: Estimator) -> NewMessage {
    let InputMessage { role, parts, pinned, metadata, response, created_at } = input;
    let parts = parts.into_iter().map(|part| host_part(part, role, pinned, estimator)).collect();
    NewMessage { pinned, metadata, created_at, ..new_message(id, role, parts, response, estimator) }
}

pub(in crate::turn) fn new_message(
    id: MessageId,
    role: Role,
    parts: Vec<StoredPart>,
    response: Option<ModelResponse>,
    estimator: Estimator,
) -> NewMessage {
    NewMessage {
        id,
        role,
        overhead: overhead(role, &parts, estimator),
        parts,
        pinned: false,
        metadata: BTreeMap::new(),
        response,
        queued: Vec::new(),
        created_at: None,
    }
}

pub(in crate::turn) fn message_tokens(message: &NewMessage) -> u32 {
    let parts = message.parts.iter().map(|part| part.size.tokens);
    parts.fold(message.overhead, u32::saturating_add)
}

/// The estimated and the reported size of a prompt.
pub(in crate::turn) fn compared(predicted: &TokenCount, reported: &Usage) -> Estimate {
    Estimate { estimated: predicted.tokens, actual: reported.input, basis: predicted.basis }
}

/// Whether the reported number of tokens is plausible as the size of the prompt. Logs the reason if it is not.
pub(in crate::turn) fn is_believed(model: &str, prompt: SentPrompt, (reported, predicted): (u32, u32)) -> bool {
    let doubt = prompt.implausibility(reported);
    if let Some(doubt) = doubt {
        tracing::warn!(
            model,
            reason = doubt.name(),
            tokens.reported = reported,
            tokens.predicted = predicted,
            "reported input tokens cannot be the size of the prompt; report not used"
        );
    }
    doubt.is_none()
}

/// The usage record of a model call. Logs the estimated and the reported size.
pub(in crate::turn) fn usage_recorded(
    purpose: UsagePurpose,
    model: &str,
    (usage, estimate): (Option<&Usage>, Option<Estimate>),
    ratio: f64,
    message: Option<&MessageId>,
) -> Payload {
    if let Some(estimate) = estimate {
        tracing::info!(
            model,
            tokens.estimated = estimate.estimated,
            tokens.actual = estimate.actual,
            tokens.deviation = estimate.error(),
            tokens.deviation_percent = format_args!("{:+.1}", estimate.error_ratio() * 100.0),
            "model call measured"
        );
    }
    Payload::UsageRecorded(UsageRecorded {
        purpose,
        model: model.to_owned(),
        usage: usage.cloned(),
        estimate,
        ratio,
        message: message.cloned(),
        compaction: None,
    })
}

/// The ids of all calls in these messages.
pub(in crate::turn) fn call_ids(messages: &[Message]) -> BTreeSet<CallId> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts.filter_map(|part| Some(part.part.content.as_call()?.id.clone())).collect()
}

/// A message that is counted, but not stored.
pub(in crate::turn) fn unstored(input: InputMessage) -> Message {
    let InputMessage { role, parts, pinned, metadata: _, response: _, created_at: _ } = input;
    let stored = |part| host_part(part, role, pinned, Estimator::Characters);
    Message {
        id: MessageId::new(""),
        turn: None,
        step: 0,
        seq: Seq(0),
        role,
        parts: parts.into_iter().map(stored).collect(),
        overhead: estimate::MESSAGE_OVERHEAD,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        response: None,
        pinned,
        metadata: BTreeMap::new(),
        is_summary: false,
        compacted_by: None,
        voided_at: None,
        queued: Vec::new(),
    }
}
