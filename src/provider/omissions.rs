//! Notes to the host about parts of a conversation that are not sent to a service. The text is the
//! same for every protocol.

use super::call_names;
use crate::model::{Message, PromptNote, PromptNoteKind};

pub(super) const REASONING: &str = "The reasoning is not sent back to this model.";
pub(super) const ITEM: &str = "This model cannot read this provider item.";
const NAME: &str = "The service does not accept this tool name. The call is sent with a sanitized name.";
const MESSAGE: &str = "Nothing in the message can be sent to this model.";

/// Returns a note that no part of a message is sent.
pub(super) fn message(message: &Message) -> PromptNote {
    note(message, None, MESSAGE)
}

/// Returns a note for each tool call of a message whose name the service rejects. `most` is the maximum length of a
/// name in bytes.
pub(super) fn names(message: &Message, most: usize) -> impl Iterator<Item = PromptNote> {
    let parts = message.parts.iter().enumerate();
    let calls = parts.filter_map(|(at, stored)| Some((at, stored.part.content.as_call()?)));
    let renamed = calls.filter(move |(_, call)| !call_names::is_accepted(&call.name, most));
    renamed.map(|(position, _)| PromptNote { kind: PromptNoteKind::Unsupported, ..part(message, position, NAME) })
}

/// Returns a note that the part at `position` is not sent, with the reason.
pub(super) fn part(message: &Message, position: usize, why: &str) -> PromptNote {
    note(message, Some(position), why)
}

fn note(message: &Message, part: Option<usize>, text: &str) -> PromptNote {
    PromptNote { kind: PromptNoteKind::Dropped, message: Some(message.id.clone()), part, text: text.to_owned() }
}
