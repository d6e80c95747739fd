//! The content of user messages and tool results: texts and media in every protocol.

use crate::model::{Content, Media, Message, OutputPart, Prompt, Role, ToolResult, media::Source};

/// A text or a media part.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Input<'a> {
    Text(&'a str),
    Media(&'a Media),
}

/// A part of a user or system message. Returns `None` for empty text and for other content.
pub(super) fn of(content: &Content) -> Option<Input<'_>> {
    match content {
        Content::Text(text) => (!text.is_empty()).then_some(Input::Text(text)),
        Content::Media(media) => Some(Input::Media(media)),
        Content::Reasoning { .. }
        | Content::ToolCall(_)
        | Content::ToolResult(_)
        | Content::Refusal(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => None,
    }
}

/// The parts of a user or system message.
pub(super) fn of_message(message: &Message) -> impl Iterator<Item = Input<'_>> {
    let parts = message.parts.iter();
    parts.filter_map(|stored| of(&stored.part.content))
}

/// The content of a tool result, in order.
pub(super) fn of_result(result: &ToolResult) -> impl Iterator<Item = Input<'_>> {
    result.parts.iter().map(|given| match given {
        OutputPart::Text(text) => Input::Text(text),
        OutputPart::Media(media) => Input::Media(media),
    })
}

/// The instructions and the texts of the system messages that start the conversation, for services
/// that take them separately and reject blank texts, and the number of those messages.
pub(super) fn leading_instructions(prompt: &Prompt) -> (Vec<&str>, usize) {
    let messages = prompt.transcript.messages().iter();
    let leading = messages.take_while(|message| message.role == Role::System);
    let instructions = prompt.system.iter().map(String::as_str);
    let texts = instructions.chain(leading.clone().flat_map(Message::texts));
    let texts = texts.filter(|text| !is_blank(text)).collect();
    (texts, leading.count())
}

/// What identifies the content of a media part: the id of its blob, or its URL.
pub(super) fn identity(media: &Media) -> &str {
    match &media.source {
        Source::Blob(kept) => kept.id.as_str(),
        Source::Url(url) => url,
    }
}

/// Whether a text is only white space.
pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}
