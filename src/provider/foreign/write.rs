//! Writes stored messages in every supported format, unchanged in content: the rules for requests
//! to a service do not apply, and content that the format cannot express is noted.

use super::Exporter;
use crate::{
    model::{Contents, Message, PromptFormat, PromptNote},
    provider::{
        ai_sdk::{self, Version},
        anthropic,
        body::plain,
        gemini, openai,
        responses::{self, CustomCalls},
    },
};

/// A message in another API's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenMessage {
    /// The elements for the message, as a JSON array.
    pub json: String,
    /// What could not be written.
    pub notes: Vec<PromptNote>,
}

/// Writes a message in this format. `contents` holds the content of those media parts whose content
/// is to be written; `text_calls` are the text calls of the messages before this one. Writes
/// nothing for a format that does not belong to another API.
pub fn write(shape: PromptFormat, message: &Message, contents: &Contents, text_calls: &CustomCalls) -> WrittenMessage {
    let mut writing = Exporter::new(message, contents);
    let elements = match shape {
        PromptFormat::OpenAiChat => openai::history::write(&mut writing),
        PromptFormat::OpenAiResponses => responses::history::write(&mut writing, text_calls),
        PromptFormat::Anthropic => anthropic::history::write(&mut writing),
        PromptFormat::Gemini => gemini::history::write(&mut writing),
        PromptFormat::AiSdk => ai_sdk::history::write(&mut writing, Version::Five),
        PromptFormat::AiSdk7 => ai_sdk::history::write(&mut writing, Version::Seven),
        PromptFormat::Neutral | PromptFormat::Native => Vec::new(),
    };
    WrittenMessage { json: plain(&elements).get().to_owned(), notes: writing.finish() }
}
