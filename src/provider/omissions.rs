//! What of a conversation a service is not sent, in the words that the host reads: the same for every
//! protocol.

use crate::model::{Message, PromptNote, PromptNoteKind};

/// Why reasoning is left out.
pub(super) const REASONING: &str = "The reasoning is not sent back to this model.";
/// Why an item of another provider is left out.
pub(super) const ITEM: &str = "This model cannot read the item.";
/// Why a whole message is left out.
const MESSAGE: &str = "Nothing in the message can be sent to this model.";

/// A message of which nothing is sent.
pub(super) fn message(message: &Message) -> PromptNote {
    note(message, None, MESSAGE)
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
