//! Converts stored messages to messages of Anthropic's Messages API, unchanged in content.

use serde_json::{Value, json, value::RawValue};

use super::{KIND, import::is_item};
use crate::{
    model::{
        Content, Media, Part, Role, ToolCall, ToolResult,
        media::{Kind, UNSUPPORTED_TEXT},
    },
    provider::{
        authorship,
        body::{Body, plain},
        foreign::{self, Exporter, MediaLocation, named},
        inputs::{self, Input},
    },
};

/// Converts a message. Empty if the message has no content in this format.
pub(crate) fn write(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let (role, blocks) = match writing.message.role {
        Role::System => ("system", input_blocks(writing)),
        Role::User => ("user", input_blocks(writing)),
        Role::Assistant => ("assistant", answer(writing)),
        Role::Tool => ("user", results(writing)),
    };
    foreign::message(role, "content", blocks)
}

fn input_blocks(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let inputs = writing.inputs();
    inputs.map(|(at, input)| plain(&block(at, input, writing))).collect()
}

fn block<'a>(position: usize, input: Input<'a>, writing: &mut Exporter<'a>) -> Value {
    match input {
        Input::Text(text) => text_block(text),
        Input::Media(media) => medium(position, media, writing),
    }
}

fn answer(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let mut blocks = Vec::new();
    for (position, stored) in writing.parts() {
        let part = &stored.part;
        match &part.content {
            Content::Text(text) if !text.is_empty() => blocks.push(cited(text, part)),
            Content::Text(_) => {}
            Content::Refusal(text) => blocks.push(plain(&text_block(text))),
            Content::Reasoning { text, .. } => blocks.extend(thinking(position, text, part, writing)),
            Content::ToolCall(call) => {
                let arguments = writing.object_arguments(position, call);
                blocks.push(tool_use(call, arguments, part));
            }
            Content::ProviderItem(item) => {
                blocks.extend(writing.item(position, item, is_item(&item.kind)));
            }
            Content::Media(media) => writing.note_unsupported_media(position, media),
            Content::ToolResult(_) | Content::Unknown(_) => {}
        }
    }
    blocks
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A text with the citations that came from this kind of service.
fn cited(text: &str, part: &Part) -> Box<RawValue> {
    let sources = foreign::sources(part, |kind| kind.ends_with("_location"));
    let mut block = Body::default();
    block.set("type", "text");
    block.set("text", text);
    block.set_list("citations", sources);
    block.raw()
}

/// Reasoning. Returns `None`, with a note, if there is nothing to write.
fn thinking(position: usize, text: &str, part: &Part, writing: &mut Exporter<'_>) -> Option<Box<RawValue>> {
    let own = authorship::attached_metadata(KIND, part).unwrap_or_default();
    if let Some(data) = own.get("redacted_thinking") {
        return Some(plain(&json!({"type": "redacted_thinking", "data": data})));
    }
    let signature = own.get("signature");
    if !writing.has_reasoning(position, part, text, signature.is_some()) {
        return None;
    }
    let mut block = json!({"type": "thinking", "thinking": text});
    if let Some(signature) = signature {
        block["signature"] = signature.clone();
    }
    Some(plain(&block))
}

fn tool_use(call: &ToolCall, arguments: Box<RawValue>, part: &Part) -> Box<RawValue> {
    let mut block = Body::default();
    block.set("type", "tool_use");
    block.set("id", call.id.as_str());
    block.set("name", &call.name);
    block.set("input", arguments);
    block.set_some("caller", authorship::attached(KIND, part, "caller"));
    block.raw()
}

fn results(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let results = writing.results();
    results.map(|(at, result)| plain(&tool_result(at, result, writing))).collect()
}

/// A tool result. The format states only whether the tool failed.
fn tool_result<'a>(position: usize, result: &'a ToolResult, writing: &mut Exporter<'a>) -> Value {
    let failed = writing.has_failed(position, result.outcome);
    let given = inputs::of_result(result);
    let content: Vec<Value> = given.map(|input| block(position, input, writing)).collect();
    let mut block = json!({"type": "tool_result", "tool_use_id": result.call.as_str(), "content": content});
    if failed {
        block["is_error"] = json!(true);
    }
    block
}

fn medium<'a>(position: usize, media: &'a Media, writing: &mut Exporter<'a>) -> Value {
    let kind = match media.kind() {
        Kind::Image => "image",
        Kind::Audio | Kind::Video | Kind::Document => "document",
    };
    let source = match writing.media_location(position, media) {
        None => return text_block(UNSUPPORTED_TEXT),
        Some(MediaLocation::Url(url)) => json!({"type": "url", "url": url}),
        Some(MediaLocation::Inline(data)) => text_source(media, writing)
            .unwrap_or_else(|| json!({"type": "base64", "media_type": media.essence(), "data": data})),
    };
    named(json!({"type": kind, "source": source}), "title", media)
}

/// The source of a plain-text document, which the service accepts as text. Returns `None` for other
/// media.
fn text_source(media: &Media, writing: &Exporter<'_>) -> Option<Value> {
    let content = writing.contents.get(&media.blob()?.id)?;
    let text = std::str::from_utf8(content).ok()?;
    (media.essence() == "text/plain").then(|| json!({"type": "text", "media_type": "text/plain", "data": text}))
}
