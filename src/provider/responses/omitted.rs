//! Notes what is left out of a request, using the same conditions as the encoder.

use super::{
    dialect::CALL_IDS,
    form::Form,
    input,
    said::{Answer, answer},
};
use crate::{
    model::{Content, Message, Prompt, PromptNote, Role, transcript},
    provider::{call_ids::Ids, call_names, omissions},
};

/// What is left out, in order.
pub(super) fn omitted(prompt: &Prompt, form: Form<'_>) -> Vec<PromptNote> {
    let stored = prompt.transcript.messages();
    let ids = Ids::of(stored, CALL_IDS);
    let loop_begins = transcript::loop_begins(stored);
    let mut notes = Vec::new();
    for (at, message) in stored.iter().enumerate() {
        match message.role {
            Role::System | Role::User => {
                let said = input::said("user", message, &prompt.contents);
                notes.extend(said.is_none().then(|| omissions::message(message)));
            }
            Role::Assistant => {
                let own = form.is_own(&prompt.model, message);
                let placed = (own, at > loop_begins);
                let Answer { items, left_out } =
                    answer(message, placed, form, (&ids, &prompt.contents));
                if items.is_empty() {
                    notes.push(omissions::message(message));
                } else {
                    notes.extend(left_out.into_iter().map(|at| part(message, at)));
                    notes.extend(omissions::names(message, call_names::MOST));
                }
            }
            Role::Tool => {}
        }
    }
    notes
}

fn part(message: &Message, at: usize) -> PromptNote {
    let is_item = message.parts.get(at).is_some_and(|stored| {
        matches!(
            stored.part.content,
            Content::ProviderItem(_) | Content::Media(_)
        )
    });
    let why = if is_item {
        "The item can be sent back only to the model that generated it."
    } else {
        omissions::REASONING
    };
    omissions::part(message, at, why)
}
