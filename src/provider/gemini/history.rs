//! Converts stored messages to contents of Gemini's generateContent, unchanged in content. Every
//! call and result has an id, so that results can be matched with their calls wherever they are
//! imported.

use serde_json::{Map, Value, json, value::RawValue};

use super::{KIND, import::is_item, names};
use crate::{
    model::{Content, Media, Role, ToolCall, ToolResult, media::UNSUPPORTED_TEXT},
    provider::{
        authorship,
        body::{Body, plain},
        foreign::{self, Exporter, MediaLocation, named},
        inputs::Input,
        inserted::INSTRUCTIONS,
    },
};

/// Converts a message.
pub(crate) fn write(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let (role, parts) = match writing.message.role {
        Role::System => ("user", input_parts(INSTRUCTIONS, writing)),
        Role::User => ("user", input_parts("", writing)),
        Role::Assistant => ("model", answer(writing)),
        Role::Tool => ("user", results(writing)),
    };
    foreign::message(role, "parts", parts)
}

/// Writes a user or system message. Contents have no role for system messages, so `mark` precedes
/// their text.
fn input_parts(mark: &str, writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let inputs = writing.inputs().map(|(position, input)| match input {
        Input::Text(text) => plain(&json!({"text": format!("{mark}{text}")})),
        Input::Media(media) => plain(&medium(position, media, writing)),
    });
    inputs.collect()
}

fn answer(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let mut parts = Vec::new();
    for (position, stored) in writing.parts() {
        let part = &stored.part;
        let signature = authorship::attached(KIND, part, "thoughtSignature");
        let mut written = Body::default();
        match &part.content {
            Content::Text(text) | Content::Refusal(text) => {
                if text.is_empty() && signature.is_none() {
                    continue;
                }
                written.set("text", text);
            }
            Content::Reasoning { text, .. } => {
                if !writing.has_reasoning(position, part, text, signature.is_some()) {
                    continue;
                }
                written.set("text", text);
                written.set("thought", true);
            }
            Content::ToolCall(call) => {
                let arguments = writing.object_arguments(position, call);
                written.set("functionCall", function_call(call, arguments));
            }
            Content::ProviderItem(item) => {
                parts.extend(writing.item(position, item, is_item(&item.kind)));
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

fn function_call(call: &ToolCall, arguments: Box<RawValue>) -> Box<RawValue> {
    let mut written = Body::default();
    written.set("id", call.id.as_str());
    written.set("name", names::escape_call(&call.name));
    written.set("args", arguments);
    written.raw()
}

fn results(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let results = writing.results();
    results.map(|(at, result)| plain(&function_response(at, result, writing))).collect()
}

/// Writes a tool result: its texts joined, then its media.
fn function_response<'a>(position: usize, result: &'a ToolResult, writing: &mut Exporter<'a>) -> Value {
    let name = if writing.has_failed(position, result.outcome) { "error" } else { "output" };
    let texts: Vec<&str> = result.texts().collect();
    let mut response = Map::new();
    response.insert(name.to_owned(), json!(texts.join("\n")));
    let media = result.media().map(|media| medium(position, media, writing));
    let media: Vec<Value> = media.collect();
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
    let (name, source) = match writing.media_location(position, media) {
        None => return json!({"text": UNSUPPORTED_TEXT}),
        Some(MediaLocation::Inline(data)) => ("inlineData", json!({"mimeType": media_type, "data": data})),
        Some(MediaLocation::Url(url)) => ("fileData", json!({"mimeType": media_type, "fileUri": url})),
    };
    json!({name: named(source, "displayName", media)})
}
