//! Converts stored messages to messages of Anthropic's Messages API, unchanged in content.

use serde_json::{Value, json, value::RawValue};

use super::{KIND, import::is_item};
use crate::{
    model::{
        Content, Media, OutputPart, Part, Role, ToolCall, ToolOutcome, ToolResult,
        media::{Kind, UNSUPPORTED_TEXT},
    },
    provider::{
        authorship,
        body::Body,
        foreign::{Exporter, MediaLocation, plain, raw},
    },
};

/// Converts a message. Empty if the message has no content in this format.
pub(in crate::provider) fn write(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let (role, blocks) = match writing.role() {
        Role::System => ("system", input_blocks(writing)),
        Role::User => ("user", input_blocks(writing)),
        Role::Assistant => ("assistant", answer(writing)),
        Role::Tool => ("user", results(writing)),
    };
    if blocks.is_empty() {
        return Vec::new();
    }
    let mut message = Body::default();
    message.set("role", role);
    message.set("content", blocks);
    vec![message.raw()]
}

fn input_blocks(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let mut blocks = Vec::new();
    for (position, stored) in writing.parts() {
        match &stored.part.content {
            Content::Text(text) if !text.is_empty() => blocks.push(plain(&text_block(text))),
            Content::Media(media) => blocks.push(plain(&medium(position, media, writing))),
            Content::Text(_)
            | Content::Reasoning { .. }
            | Content::ToolCall(_)
            | Content::ToolResult(_)
            | Content::Refusal(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => {}
        }
    }
    blocks
}

fn answer(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let mut blocks = Vec::new();
    for (position, stored) in writing.parts() {
        let part = &stored.part;
        match &part.content {
            Content::Text(text) if !text.is_empty() => blocks.push(cited(text, part)),
            Content::Text(_) => {}
            Content::Refusal(text) => blocks.push(plain(&text_block(text))),
            Content::Reasoning { text, .. } => {
                blocks.extend(thinking(position, text, part, writing))
            }
            Content::ToolCall(call) => {
                if !call.has_object() {
                    writing.note_invalid_arguments(position);
                }
                blocks.push(tool_use(call, part));
            }
            Content::ProviderItem(item) => match raw(&item.json).filter(|_| is_item(&item.kind)) {
                Some(item) => blocks.push(item),
                None => writing.note_unsupported_item(position),
            },
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
    let sources = part.citations.iter().filter_map(|citation| {
        let json = citation.provider_metadata.as_deref()?;
        let value: Value = serde_json::from_str(json).ok()?;
        value
            .get("type")?
            .as_str()?
            .ends_with("_location")
            .then(|| raw(json))?
    });
    let sources: Vec<Box<RawValue>> = sources.collect();
    let mut block = Body::default();
    block.set("type", "text");
    block.set("text", text);
    block.set_some("citations", (!sources.is_empty()).then_some(sources));
    block.raw()
}

/// Reasoning. Returns `None`, with a note, if there is nothing to write.
fn thinking(
    position: usize,
    text: &str,
    part: &Part,
    writing: &mut Exporter<'_>,
) -> Option<Box<RawValue>> {
    let own = authorship::attached_metadata(KIND, part).unwrap_or_default();
    if let Some(data) = own.get("redacted_thinking") {
        return Some(plain(&json!({"type": "redacted_thinking", "data": data})));
    }
    let signature = own.get("signature");
    if signature.is_none() && text.is_empty() {
        writing.note_hidden_reasoning(position);
        return None;
    }
    if signature.is_none() && part.provider_metadata.is_some() {
        writing.note_unsupported_signature(position);
    }
    let mut block = json!({"type": "thinking", "thinking": text});
    if let Some(signature) = signature {
        block["signature"] = signature.clone();
    }
    Some(plain(&block))
}

fn tool_use(call: &ToolCall, part: &Part) -> Box<RawValue> {
    let arguments = raw(&call.arguments).filter(|_| call.has_object());
    let caller = authorship::attached_metadata(KIND, part).and_then(|mut own| own.remove("caller"));
    let mut block = Body::default();
    block.set("type", "tool_use");
    block.set("id", call.id.as_str());
    block.set("name", &call.name);
    block.set("input", arguments.unwrap_or_else(|| plain(&json!({}))));
    block.set_some("caller", caller);
    block.raw()
}

fn results(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let mut blocks = Vec::new();
    for (position, stored) in writing.parts() {
        if let Content::ToolResult(result) = &stored.part.content {
            blocks.push(plain(&tool_result(position, result, writing)));
        }
    }
    blocks
}

/// A tool result. The format states only whether the tool failed.
fn tool_result<'a>(position: usize, result: &'a ToolResult, writing: &mut Exporter<'a>) -> Value {
    let failed = match result.outcome {
        ToolOutcome::Success => false,
        ToolOutcome::Error => true,
        ToolOutcome::Denied => {
            writing.note_unsupported_outcome(position, result.outcome);
            true
        }
        ToolOutcome::TimedOut | ToolOutcome::Cancelled => {
            writing.note_unsupported_outcome(position, result.outcome);
            false
        }
    };
    let pieces = result.parts.iter().map(|given| match given {
        OutputPart::Text(text) => text_block(text),
        OutputPart::Media(media) => medium(position, media, writing),
    });
    let content: Vec<Value> = pieces.collect();
    let mut block =
        json!({"type": "tool_result", "tool_use_id": result.call.as_str(), "content": content});
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
        Some(MediaLocation::Inline(data)) => text_source(media, writing).unwrap_or_else(
            || json!({"type": "base64", "media_type": media.essence(), "data": data}),
        ),
    };
    let mut block = json!({"type": kind, "source": source});
    if !media.filename.is_empty() {
        block["title"] = json!(media.filename);
    }
    block
}

/// The source of a plain-text document, which the service accepts as text. Returns `None` for other
/// media.
fn text_source(media: &Media, writing: &Exporter<'_>) -> Option<Value> {
    let content = writing.contents().get(&media.blob()?.id)?;
    let text = std::str::from_utf8(content).ok()?;
    (media.essence() == "text/plain")
        .then(|| json!({"type": "text", "media_type": "text/plain", "data": text}))
}
