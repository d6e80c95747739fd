//! What of a conversation is left out of the request: the same questions as when it is written, and
//! their answers in words.

use super::{
    dialect::CALL_IDS,
    form::Form,
    input,
    said::{Answer, answer},
};
use crate::{
    model::{Content, Message, Prompt, PromptNote, PromptNoteKind, Role},
    provider::call_ids::Ids,
};

/// What is left out, in order.
pub(super) fn omitted(prompt: &Prompt, form: Form<'_>) -> Vec<PromptNote> {
    let stored = prompt.transcript.messages();
    let ids = Ids::of(stored, CALL_IDS);
    let mut notes = Vec::new();
    for message in stored {
        match message.role {
            Role::System | Role::User => {
                let said = input::said("user", message, &prompt.contents);
                notes.extend(said.is_none().then(|| whole(message)));
            }
            Role::Assistant => {
                let own = form.is_own(&prompt.model, message);
                let Answer { items, left_out } = answer(message, own, form, &ids);
                if items.is_empty() {
                    notes.push(whole(message));
                } else {
                    notes.extend(left_out.into_iter().map(|at| part(message, at)));
                }
            }
            Role::Tool => {}
        }
    }
    notes
}

fn whole(message: &Message) -> PromptNote {
    let text = "Nothing in the message can be sent to this model.".to_owned();
    PromptNote {
        kind: PromptNoteKind::Dropped,
        message: Some(message.id.clone()),
        part: None,
        text,
    }
}

fn part(message: &Message, at: usize) -> PromptNote {
    let is_item = message
        .parts
        .get(at)
        .is_some_and(|stored| matches!(stored.part.content, Content::ProviderItem(_)));
    let text = if is_item {
        "The item can be sent back to the model that made it only."
    } else {
        "The reasoning is not sent back to this model."
    };
    PromptNote {
        kind: PromptNoteKind::Dropped,
        message: Some(message.id.clone()),
        part: Some(at),
        text: text.to_owned(),
    }
}
