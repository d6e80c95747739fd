//! Notes what is left out of a request, using the same conditions as the encoder.

use super::{
    assistant_items::{EncodedResponse, answer},
    dialect::CALL_IDS,
    encode_options::EncodeOptions,
    input,
};
use crate::{
    model::{Content, Message, Prompt, PromptNote, Role, transcript},
    provider::{call_ids::CallIdMap, call_names, omissions},
};

/// What is left out, in order.
pub(super) fn omitted(prompt: &Prompt, form: EncodeOptions<'_>) -> Vec<PromptNote> {
    let stored = prompt.transcript.messages();
    let ids = CallIdMap::of(stored, CALL_IDS);
    let loop_begins = transcript::loop_begins(stored);
    let mut notes = Vec::new();
    for (at, message) in stored.iter().enumerate() {
        match message.role {
            Role::System | Role::User => {
                let said = input::input_message("user", message, &prompt.contents);
                notes.extend(said.is_none().then(|| omissions::message(message)));
            }
            Role::Assistant => {
                let own = form.is_own(&prompt.model, message);
                let placed = (own, at > loop_begins);
                let EncodedResponse { items, left_out } = answer(message, placed, form, (&ids, &prompt.contents));
                if items.is_empty() {
                    notes.push(omissions::message(message));
                } else {
                    notes.extend(left_out.into_iter().map(|at| part(message, at)));
                    notes.extend(omissions::names(message, call_names::MAX_NAME_CHARS));
                }
            }
            Role::Tool => {}
        }
    }
    notes
}

fn part(message: &Message, at: usize) -> PromptNote {
    let is_item = message
        .parts
        .get(at)
        .is_some_and(|stored| matches!(stored.part.content, Content::ProviderItem(_) | Content::Media(_)));
    let why =
        if is_item { "The item can be sent back only to the model that generated it." } else { omissions::REASONING };
    omissions::part(message, at, why)
}
