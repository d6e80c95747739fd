//! Writes stored messages in every shape, as they were said: no rule of a service leaves anything out,
//! and what the shape has no form for is noted.

use serde_json::value::to_raw_value;

use super::Writing;
use crate::{
    model::{Contents, Message, PromptNote, PromptShape},
    provider::{
        ai_sdk::{self, Version},
        anthropic, gemini, openai,
        responses::{self, TextCalls},
    },
};

/// A message in another API's shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The elements that it becomes, a JSON array.
    pub json: String,
    /// What is not in them.
    pub notes: Vec<PromptNote>,
}

/// Writes a message in that shape. `contents` has the content of its media as far as it is to be
/// written, `text_calls` those of the messages before it. A shape that is no other API's has no form
/// for messages.
pub fn write(
    shape: PromptShape,
    message: &Message,
    contents: &Contents,
    text_calls: &TextCalls,
) -> Written {
    let mut writing = Writing::new(message, contents);
    let elements = match shape {
        PromptShape::OpenAiChat => openai::history::write(&mut writing),
        PromptShape::OpenAiResponses => responses::history::write(&mut writing, text_calls),
        PromptShape::Anthropic => anthropic::history::write(&mut writing),
        PromptShape::Gemini => gemini::history::write(&mut writing),
        PromptShape::AiSdk => ai_sdk::history::write(&mut writing, Version::Five),
        PromptShape::AiSdk7 => ai_sdk::history::write(&mut writing, Version::Seven),
        PromptShape::Neutral | PromptShape::Native => Vec::new(),
    };
    let json = to_raw_value(&elements).expect("a list of JSON is JSON");
    Written {
        json: json.get().to_owned(),
        notes: writing.finish(),
    }
}
