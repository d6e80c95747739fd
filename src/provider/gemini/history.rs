//! Converts stored messages to contents of Gemini's generateContent, unchanged in content. Every
//! call and result has an id, so that results can be matched with their calls wherever they are
//! imported.

use serde_json::{Map, Value, json, value::RawValue};

use super::{KIND, import::is_item, names};
use crate::{
    model::{
        Content, Media, OutputPart, Role, ToolCall, ToolOutcome, ToolResult,
        media::UNSUPPORTED_TEXT,
    },
    provider::{
        authorship,
        body::Body,
        foreign::{Exporter, MediaLocation, plain, raw},
        inserted::INSTRUCTIONS,
    },
};

/// Converts a message.
pub(in crate::provider) fn write(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let (role, parts) = match writing.role() {
        Role::System => ("user", input_parts(INSTRUCTIONS, writing)),
        Role::User => ("user", input_parts("", writing)),
        Role::Assistant => ("model", answer(writing)),
        Role::Tool => ("user", results(writing)),
    };
    if parts.is_empty() {
        return Vec::new();
    }
    let mut content = Body::default();
    content.set("role", role);
    content.set("parts", parts);
    vec![content.raw()]
}

/// Writes a user or system message. Contents have no role for system messages, so `mark` precedes
/// their text.
fn input_parts(mark: &str, writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let mut parts = Vec::new();
    for (position, stored) in writing.parts() {
        match &stored.part.content {
            Content::Text(text) if !text.is_empty() => {
                parts.push(plain(&json!({"text": format!("{mark}{text}")})));
            }
            Content::Media(media) => parts.push(plain(&medium(position, media, writing))),
            Content::Text(_)
            | Content::Reasoning { .. }
            | Content::ToolCall(_)
            | Content::ToolResult(_)
            | Content::Refusal(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => {}
        }
    }
    parts
}

fn answer(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let mut parts = Vec::new();
    for (position, stored) in writing.parts() {
        let part = &stored.part;
        let signature = authorship::attached_metadata(KIND, part)
            .and_then(|mut own| own.remove("thoughtSignature"));
        let mut written = Body::default();
        match &part.content {
            Content::Text(text) | Content::Refusal(text) => {
                if text.is_empty() && signature.is_none() {
                    continue;
                }
                written.set("text", text);
            }
            Content::Reasoning { text, .. } => {
                if signature.is_none() && text.is_empty() {
                    writing.note_hidden_reasoning(position);
                    continue;
                }
                if signature.is_none() && part.provider_metadata.is_some() {
                    writing.note_unsupported_signature(position);
                }
                written.set("text", text);
                written.set("thought", true);
            }
            Content::ToolCall(call) => {
                if !call.has_object() {
                    writing.note_invalid_arguments(position);
                }
                written.set("functionCall", function_call(call));
            }
            Content::ProviderItem(item) => {
                match raw(&item.json).filter(|_| is_item(&item.kind)) {
                    Some(item) => parts.push(item),
                    None => writing.note_unsupported_item(position),
                }
                continue;
            }
            Content::Media(media) => {
                parts.push(plain(&medium(position, media, writing)));
                continue;
            }
            Content::ToolResult(_) | Content::Unknown(_) => continue,
        }
        written.set_some("thoughtSignature", signature);
        parts.push(written.raw());
    }
    parts
}

fn function_call(call: &ToolCall) -> Box<RawValue> {
    let arguments = raw(&call.arguments).filter(|_| call.has_object());
    let mut written = Body::default();
    written.set("id", call.id.as_str());
    written.set("name", names::escape_call(&call.name));
    written.set("args", arguments.unwrap_or_else(|| plain(&json!({}))));
    written.raw()
}

fn results(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let mut parts = Vec::new();
    for (position, stored) in writing.parts() {
        if let Content::ToolResult(result) = &stored.part.content {
            parts.push(plain(&function_response(position, result, writing)));
        }
    }
    parts
}

/// Writes a tool result: its texts joined, then its media.
fn function_response<'a>(
    position: usize,
    result: &'a ToolResult,
    writing: &mut Exporter<'a>,
) -> Value {
    let name = match result.outcome {
        ToolOutcome::Success => "output",
        ToolOutcome::Error => "error",
        ToolOutcome::Denied => {
            writing.note_unsupported_outcome(position, result.outcome);
            "error"
        }
        ToolOutcome::TimedOut | ToolOutcome::Cancelled => {
            writing.note_unsupported_outcome(position, result.outcome);
            "output"
        }
    };
    let texts: Vec<&str> = result.texts().collect();
    let mut response = Map::new();
    response.insert(name.to_owned(), json!(texts.join("\n")));
    let media = result.parts.iter().filter_map(OutputPart::media);
    let media: Vec<Value> = media
        .map(|media| medium(position, media, writing))
        .collect();
    let mut written = json!({
        "id": result.call.as_str(), "name": names::escape_call(&result.name), "response": response,
    });
    if !media.is_empty() {
        written["parts"] = Value::Array(media);
    }
    json!({"functionResponse": written})
}

fn medium<'a>(position: usize, media: &'a Media, writing: &mut Exporter<'a>) -> Value {
    let media_type = media.essence();
    let (name, mut source) = match writing.media_location(position, media) {
        None => return json!({"text": UNSUPPORTED_TEXT}),
        Some(MediaLocation::Inline(data)) => {
            ("inlineData", json!({"mimeType": media_type, "data": data}))
        }
        Some(MediaLocation::Url(url)) => {
            ("fileData", json!({"mimeType": media_type, "fileUri": url}))
        }
    };
    if !media.filename.is_empty() {
        source["displayName"] = json!(media.filename);
    }
    json!({name: source})
}
