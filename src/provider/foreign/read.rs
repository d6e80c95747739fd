//! Reads messages in every supported format.

use std::collections::BTreeSet;

use super::{FlawKind, Foreign, Node, Reading};
use crate::{
    model::PromptShape,
    provider::{ai_sdk, anthropic, gemini, openai, responses},
};

/// Reads messages in this format. Calls without an id get one that starts with `prefix`. Returns no
/// messages for a format that does not belong to another API.
pub fn read(shape: PromptShape, json: &str, prefix: &str) -> Foreign {
    let mut reading = Reading {
        foreign: Foreign::default(),
        prefix,
        made: 0,
        replaced: BTreeSet::new(),
    };
    let Some(elements) = elements(json, &mut reading) else {
        return reading.finish();
    };
    match shape {
        PromptShape::OpenAiChat => openai::import::read(&elements, &mut reading),
        PromptShape::OpenAiResponses => responses::import::read(&elements, &mut reading),
        PromptShape::Anthropic => anthropic::import::read(&elements, &mut reading),
        PromptShape::Gemini => gemini::import::read(&elements, &mut reading),
        PromptShape::AiSdk | PromptShape::AiSdk7 => ai_sdk::import::read(&elements, &mut reading),
        PromptShape::Neutral | PromptShape::Native => {}
    }
    let Foreign { messages, flaws } = &reading.foreign;
    if messages.is_empty() && flaws.is_empty() {
        reading.note(String::new(), FlawKind::Missing, "must contain a message");
    }
    reading.finish()
}

/// The elements of the root array.
fn elements<'a>(json: &'a str, reading: &mut Reading<'_>) -> Option<Vec<Node<'a>>> {
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
