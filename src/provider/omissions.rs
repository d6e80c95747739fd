//! Notes to the host about parts of a conversation that are not sent to a service. The text is the
//! same for every protocol.

use super::call_names;
use crate::model::{Message, PromptNote, PromptNoteKind};

pub(super) const REASONING: &str = "The reasoning is not sent back to this model.";
pub(super) const ITEM: &str = "This model cannot read the item.";
const NAME: &str = "The service does not accept this tool name: the call is sent with a name of accepted characters.";
const MESSAGE: &str = "Nothing in the message can be sent to this model.";

/// Notes that nothing of a message is sent.
pub(super) fn message(message: &Message) -> PromptNote {
    note(message, None, MESSAGE)
}

/// Notes the calls of a message whose names are rejected by a service that accepts `most`
/// characters.
pub(super) fn names(message: &Message, most: usize) -> impl Iterator<Item = PromptNote> {
    let parts = message.parts.iter().enumerate();
    let calls = parts.filter_map(|(at, stored)| Some((at, stored.part.content.as_call()?)));
    let renamed = calls.filter(move |(_, call)| !call_names::is_accepted(&call.name, most));
    renamed.map(|(position, _)| PromptNote { kind: PromptNoteKind::Unsupported, ..part(message, position, NAME) })
}

/// Notes that the part at `position` is not sent, and why.
pub(super) fn part(message: &Message, position: usize, why: &str) -> PromptNote {
    note(message, Some(position), why)
}

fn note(message: &Message, part: Option<usize>, text: &str) -> PromptNote {
    PromptNote { kind: PromptNoteKind::Dropped, message: Some(message.id.clone()), part, text: text.to_owned() }
}
