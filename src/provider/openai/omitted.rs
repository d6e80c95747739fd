//! Notes what is left out of a request, using the same conditions as the encoder.

use super::{
    bound::BoundReasoning,
    encode_options::EncodeOptions,
    messages::{SentReasoning, is_sendable, texts},
};
use crate::{
    model::{Content, Message, Prompt, PromptNote, Role},
    provider::{call_names, omissions},
};

/// What is left out, in order.
pub(super) fn omitted(prompt: &Prompt, form: EncodeOptions<'_>) -> Vec<PromptNote> {
    let stored = prompt.transcript.messages();
    let bound = BoundReasoning::of(prompt, form);
    let mut notes = Vec::new();
    let back = SentReasoning::of(stored, &prompt.model, form, &bound);
    for (message, back) in stored.iter().zip(back) {
        match message.role {
            Role::System | Role::User if texts(message).is_empty() => notes.push(omissions::message(message)),
            Role::Assistant => {
                if is_sendable(message, form.dialect) {
                    notes.extend(reasoning(message, back));
                    notes.extend(omissions::names(message, call_names::MAX_NAME_CHARS));
                } else {
                    notes.push(omissions::message(message));
                }
            }
            Role::System | Role::User | Role::Tool => {}
        }
    }
    notes
}

/// Notes the reasoning that is not sent back.
fn reasoning(message: &Message, back: SentReasoning<'_>) -> impl Iterator<Item = PromptNote> {
    let dropped = move |(position, stored): (usize, &crate::model::message::StoredPart)| {
        let Content::Reasoning { .. } = &stored.part.content else {
            return None;
        };
        (!back.takes(&stored.part)).then(|| omissions::part(message, position, omissions::REASONING))
    };
    message.parts.iter().enumerate().filter_map(dropped)
}
