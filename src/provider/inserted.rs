//! Words that contextd puts into a conversation where a service takes it in a certain form only:
//! the same for every protocol, so that a model finds nothing new after a switch.

use std::borrow::Cow;

use crate::model::{Given, Media};

/// What a user says before an assistant who speaks first.
pub(super) const OPENING: &str = "[The conversation begins.]";

/// What stands before instructions within the conversation, for a service that takes them from a
/// user only.
pub(super) const INSTRUCTIONS: &str = "[Instructions]\n";

/// What a user says after an answer that is to go on, for a model that goes on from no words of its
/// own.
pub(super) const CONTINUE: &str = "[Continue.]";

/// What stands for the reasoning of a call that another model made, for a model that refuses calls
/// without any.
pub(super) const NO_REASONING: &str = "[Not kept.]";

/// What a tool gave as one text, for services that take no media there: where a medium stands, that
/// it follows. One text alone, as nearly every result is, is not copied.
pub(in crate::provider) fn in_words<'a>(parts: &'a [Given]) -> Cow<'a, str> {
    let text = |given: &'a Given| match given {
        Given::Text(text) => Cow::Borrowed(text.as_str()),
        Given::Media(medium) => Cow::Owned(shown_later(medium)),
    };
    match parts {
        [one] => text(one),
        several => Cow::Owned(several.iter().map(text).collect::<Vec<_>>().join("\n")),
    }
}

/// What stands in a result for a medium that follows the results.
pub(in crate::provider) fn shown_later(medium: &Media) -> String {
    format!("[{}: shown after the results]", medium.title())
}
