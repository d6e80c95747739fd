//! Text that contextd inserts into a conversation where a service accepts it only in a certain
//! form. It is the same for every protocol, so that a switch of models does not change it.

use std::borrow::Cow;

use crate::model::{Media, OutputPart};

/// User message before a conversation that starts with an assistant message.
pub(super) const OPENING: &str = "[The conversation begins.]";

/// Prefix of instructions within the conversation, for a service that accepts them only in a user
/// message.
pub(super) const INSTRUCTIONS: &str = "[Instructions]\n";

/// User message after a response that the model is to continue, for a model that does not accept an
/// assistant message at the end.
pub(super) const CONTINUE: &str = "[Continue.]";

/// Placeholder for the reasoning of another model's tool call, for a model that rejects calls
/// without reasoning.
pub(super) const NO_REASONING: &str = "[Not kept.]";

/// The content of a tool result as one text, for services that accept no media in tool results.
/// Each media part is replaced by a note that it follows. A single text, the usual case, is not
/// copied.
pub(in crate::provider) fn result_parts_text<'a>(parts: &'a [OutputPart]) -> Cow<'a, str> {
    let text = |given: &'a OutputPart| match given {
        OutputPart::Text(text) => Cow::Borrowed(text.as_str()),
        OutputPart::Media(medium) => Cow::Owned(media_follows_note(medium)),
    };
    match parts {
        [one] => text(one),
        several => Cow::Owned(several.iter().map(text).collect::<Vec<_>>().join("\n")),
    }
}

/// The text in a tool result that replaces a media part which follows the results.
pub(in crate::provider) fn media_follows_note(medium: &Media) -> String {
    format!("[{}: shown after the results]", medium.title())
}
