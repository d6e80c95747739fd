//! Reads messages in every supported format.

use std::collections::BTreeSet;

use super::{FlawKind, ForeignConversation, Importer, Node};
use crate::{
    model::PromptFormat,
    provider::{ai_sdk, anthropic, gemini, openai, responses},
};

/// Reads messages in this format. Calls without an id get one that starts with `prefix`. Returns no
/// messages for a format that does not belong to another API.
pub fn read(shape: PromptFormat, json: &str, prefix: &str) -> ForeignConversation {
    let mut reading = Importer { foreign: ForeignConversation::default(), prefix, made: 0, replaced: BTreeSet::new() };
    let Some(elements) = elements(json, &mut reading) else {
        return reading.finish();
    };
    match shape {
        PromptFormat::OpenAiChat => openai::import::read(&elements, &mut reading),
        PromptFormat::OpenAiResponses => responses::import::read(&elements, &mut reading),
        PromptFormat::Anthropic => anthropic::import::read(&elements, &mut reading),
        PromptFormat::Gemini => gemini::import::read(&elements, &mut reading),
        PromptFormat::AiSdk | PromptFormat::AiSdk7 => ai_sdk::import::read(&elements, &mut reading),
        PromptFormat::Neutral | PromptFormat::Native => {}
    }
    let ForeignConversation { messages, flaws } = &reading.foreign;
    if messages.is_empty() && flaws.is_empty() {
        reading.note(String::new(), FlawKind::Missing, "must contain a message");
    }
    reading.finish()
}

/// The elements of the root array.
fn elements<'a>(json: &'a str, reading: &mut Importer<'_>) -> Option<Vec<Node<'a>>> {
    let Ok(raw) = serde_json::from_str(json) else {
        reading.note(String::new(), FlawKind::NotJson, "must be a JSON array");
        return None;
    };
    let root = Node::root(raw);
    if !root.is_array() {
        let why = "must be only the JSON array of messages, not the whole request";
        reading.note(String::new(), FlawKind::Malformed, why);
        return None;
    }
    Some(root.elements(reading))
}
