//! Converts stored messages to messages of Chat Completions, unchanged in content.

use serde_json::{Value, json, value::RawValue};

use super::KIND;
use crate::{
    model::{
        Content, Media, Role,
        media::{Kind, UNSUPPORTED_TEXT},
    },
    provider::{
        authorship,
        body::{Body, plain},
        foreign::{Exporter, MediaLocation, named},
        inputs::{self, Input},
    },
};

/// Converts a message: one message per tool result, otherwise one.
pub(crate) fn write(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    match writing.message.role {
        Role::System => input_message("system", writing),
        Role::User => input_message("user", writing),
        Role::Assistant => vec![answer(writing)],
        Role::Tool => results(writing),
    }
}

fn input_message(role: &str, writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let inputs = writing.inputs();
    let pieces = inputs.map(|(position, input)| piece(position, input, writing));
    let content = one_text(pieces.collect());
    vec![plain(&json!({"role": role, "content": content}))]
}

fn piece<'a>(position: usize, input: Input<'a>, writing: &mut Exporter<'a>) -> Value {
    match input {
        Input::Text(text) => text_piece(text),
        Input::Media(media) => medium(position, media, writing),
    }
}

/// An assistant message: reasoning, text, refusal and tool calls.
fn answer(writing: &mut Exporter<'_>) -> Box<RawValue> {
    let mut thought = Vec::new();
    let mut details = None;
    let mut words = Vec::new();
    let mut calls = Vec::new();
    for (position, stored) in writing.parts() {
        let part = &stored.part;
        match &part.content {
            Content::Reasoning { text, .. } => {
                let own = authorship::attached(KIND, part, "reasoning_details");
                if own.is_none() && part.provider_metadata.is_some() {
                    writing.note_unsupported_signature(position);
                }
                if own.is_none() && text.is_empty() {
                    writing.note_hidden_reasoning(position);
                }
                details = own.or(details);
                thought.extend(Some(text.as_str()).filter(|text| !text.is_empty()));
            }
            Content::Text(text) if !text.is_empty() => words.push(text_piece(text)),
            Content::Text(_) => {}
            Content::Refusal(text) => words.push(json!({"type": "refusal", "refusal": text})),
            Content::ToolCall(call) => {
                let function = json!({"name": call.name, "arguments": call.arguments});
                let mut written = json!({"id": call.id.as_str(), "type": "function", "function": function});
                if let Some(extra) = authorship::attached(KIND, part, "extra_content") {
                    written["extra_content"] = extra;
                }
                calls.push(written);
            }
            Content::Media(media) => writing.note_unsupported_media(position, media),
            Content::ProviderItem(item) => drop(writing.item(position, item, false)),
            Content::ToolResult(_) | Content::Unknown(_) => {}
        }
    }
    let mut message = Body::default();
    message.set("role", "assistant");
    let thought = thought.join("\n\n");
    let thought = (!thought.is_empty()).then_some(thought);
    message.set_some("reasoning_content", thought);
    message.set_some("reasoning_details", details);
    // A refusal at the end becomes a field of the message. Elsewhere it is a part of the content.
    let refuses = |piece: &Value| piece["type"] == "refusal";
    let is_last = words.iter().position(refuses).map(|at| at + 1) == Some(words.len());
    let refusal = words.pop_if(|_| is_last);
    let content = (!words.is_empty()).then(|| one_text(words));
    message.set("content", content);
    message.set_some("refusal", refusal.map(|mut piece| piece["refusal"].take()));
    message.set_list("tool_calls", calls);
    message.raw()
}

fn results(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let results = writing.results().map(|(position, result)| {
        writing.note_unsupported_outcome(position, result.outcome);
        let pieces = inputs::of_result(result).map(|input| piece(position, input, writing));
        let content = one_text(pieces.collect());
        let call = result.call.as_str();
        plain(&json!({"role": "tool", "tool_call_id": call, "content": content}))
    });
    results.collect()
}

/// A single text becomes a string, anything else an array of parts.
fn one_text(pieces: Vec<Value>) -> Value {
    match pieces.as_slice() {
        [] => json!(""),
        [piece] if piece["type"] == "text" => piece["text"].clone(),
        _ => Value::Array(pieces),
    }
}

fn text_piece(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn medium<'a>(position: usize, media: &'a Media, writing: &mut Exporter<'a>) -> Value {
    let essence = media.essence();
    match media.kind() {
        Kind::Image => {
            let Some(url) = writing.media_url(position, media) else {
                return text_piece(UNSUPPORTED_TEXT);
            };
            json!({"type": "image_url", "image_url": {"url": url}})
        }
        Kind::Audio if media.blob().is_some() => {
            let Some(MediaLocation::Inline(data)) = writing.media_location(position, media) else {
                return text_piece(UNSUPPORTED_TEXT);
            };
            let format = match essence.as_str() {
                "audio/mpeg" => "mp3",
                other => other.trim_start_matches("audio/"),
            };
            json!({"type": "input_audio", "input_audio": {"data": data, "format": format}})
        }
        Kind::Audio | Kind::Video | Kind::Document => {
            let Some(data) = writing.media_url(position, media) else {
                return text_piece(UNSUPPORTED_TEXT);
            };
            json!({"type": "file", "file": named(json!({"file_data": data}), "filename", media)})
        }
    }
}
