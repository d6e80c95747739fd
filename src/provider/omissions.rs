//! What of a conversation a service is not sent, in the words that the host reads: the same for every
//! protocol.

use super::call_names;
use crate::model::{Content, Message, Part, PromptNote, PromptNoteKind};

/// Why reasoning is left out.
pub(super) const REASONING: &str = "The reasoning is not sent back to this model.";
/// Why an item of another provider is left out.
pub(super) const ITEM: &str = "This model cannot read the item.";
/// What happens to the name of a call that the service would refuse.
const NAME: &str = "The service takes no such name of a tool: the call is sent with a name in characters that it takes.";
/// Why a whole message is left out.
const MESSAGE: &str = "Nothing in the message can be sent to this model.";

/// A message of which nothing is sent.
pub(super) fn message(message: &Message) -> PromptNote {
    note(message, None, MESSAGE)
}

/// The calls of a message whose names a service would refuse that takes `most` characters.
pub(super) fn names(message: &Message, most: usize) -> impl Iterator<Item = PromptNote> {
    let refused = move |part: &Part| match &part.content {
        Content::ToolCall(call) => !call_names::is_taken(&call.name, most),
        Content::Text(_)
        | Content::Reasoning { .. }
        | Content::ToolResult(_)
        | Content::Refusal(_)
        | Content::Media(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => false,
    };
    let parts = message.parts.iter().enumerate();
    parts
        .filter(move |(_, stored)| refused(&stored.part))
        .map(|(position, _)| PromptNote {
            kind: PromptNoteKind::Unsupported,
            ..part(message, position, NAME)
        })
}

/// A part that is not sent, by its position.
pub(super) fn part(message: &Message, position: usize, why: &str) -> PromptNote {
    note(message, Some(position), why)
}

fn note(message: &Message, part: Option<usize>, text: &str) -> PromptNote {
    PromptNote {
        kind: PromptNoteKind::Dropped,
        message: Some(message.id.clone()),
        part,
        text: text.to_owned(),
    }
}
