//! What of a conversation is left out of the request: the same questions as when it is written, and
//! their answers in words.

use super::{
    form::Form,
    messages::{Back, is_sendable, texts},
};
use crate::{
    model::{Content, Message, Prompt, PromptNote, Role, transcript},
    provider::omissions,
};

/// What is left out, in order.
pub(super) fn omitted(prompt: &Prompt, form: Form<'_>) -> Vec<PromptNote> {
    let stored = prompt.transcript.messages();
    let loop_begins = transcript::loop_begins(stored);
    let mut notes = Vec::new();
    for (at, message) in stored.iter().enumerate() {
        match message.role {
            Role::System | Role::User if texts(message).is_empty() => {
                notes.push(omissions::message(message))
            }
            Role::Assistant => {
                let back = Back::of(message, at > loop_begins, &prompt.model, form);
                if is_sendable(message) {
                    notes.extend(reasoning(message, back));
                } else {
                    notes.push(omissions::message(message));
                }
            }
            Role::System | Role::User | Role::Tool => {}
        }
    }
    notes
}

/// The reasoning that does not go back.
fn reasoning(message: &Message, back: Back) -> impl Iterator<Item = PromptNote> {
    let dropped = move |(position, stored): (usize, &crate::model::message::StoredPart)| {
        let Content::Reasoning { .. } = &stored.part.content else {
            return None;
        };
        (!back.takes(&stored.part))
            .then(|| omissions::part(message, position, omissions::REASONING))
    };
    message.parts.iter().enumerate().filter_map(dropped)
}
