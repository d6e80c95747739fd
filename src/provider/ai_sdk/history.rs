//! Converts stored messages to messages of the AI SDK, unchanged in content.

use serde_json::{Value, json, value::RawValue};

use super::{
    KIND, READER, Version,
    export::{file, options, output, text_part, with},
    import::kept_options,
};
use crate::{
    model::{Content, Media, Role, ToolCall, ToolOutcome},
    provider::{
        authorship,
        body::Body,
        foreign::{Exporter, plain, raw},
    },
};

/// Converts a message.
pub(in crate::provider) fn write(
    writing: &mut Exporter<'_>,
    version: Version,
) -> Vec<Box<RawValue>> {
    let (role, parts) = match writing.role() {
        Role::System => return instructions(writing),
        Role::User => ("user", user_parts(writing, version)),
        Role::Assistant => ("assistant", answer(writing, version)),
        Role::Tool => ("tool", results(writing, version)),
    };
    if parts.is_empty() {
        return Vec::new();
    }
    let mut message = Body::default();
    message.set("role", role);
    message.set("content", parts);
    vec![message.raw()]
}

/// A system message, whose content is one text. The options of its part become those of the
/// message.
fn instructions(writing: &Exporter<'_>) -> Vec<Box<RawValue>> {
    let message = writing.message();
    let texts: Vec<&str> = message.texts().filter(|text| !text.is_empty()).collect();
    let options = message
        .parts
        .first()
        .and_then(|stored| kept_options(&stored.part));
    let written = json!({"role": "system", "content": texts.join("\n\n")});
    vec![plain(&with(written, options))]
}

fn user_parts(writing: &mut Exporter<'_>, version: Version) -> Vec<Box<RawValue>> {
    let mut parts = Vec::new();
    for (position, stored) in writing.parts() {
        let written = match &stored.part.content {
            Content::Text(text) if !text.is_empty() => text_part(text),
            Content::Media(media) => medium(position, media, writing, version),
            Content::Text(_)
            | Content::Reasoning { .. }
            | Content::ToolCall(_)
            | Content::ToolResult(_)
            | Content::Refusal(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => continue,
        };
        parts.push(plain(&with(written, kept_options(&stored.part))));
    }
    parts
}

fn answer(writing: &mut Exporter<'_>, version: Version) -> Vec<Box<RawValue>> {
    let mut parts = Vec::new();
    for (position, stored) in writing.parts() {
        let part = &stored.part;
        let options = options(part);
        match &part.content {
            Content::Text(text) | Content::Refusal(text) => {
                if !text.is_empty() || options.is_some() {
                    parts.push(plain(&with(text_part(text), options)));
                }
            }
            Content::Reasoning { text, .. } => {
                if text.is_empty() && options.is_none() {
                    writing.note_hidden_reasoning(position);
                    continue;
                }
                if options.is_none() && part.provider_metadata.is_some() {
                    writing.note_unsupported_signature(position);
                }
                let written = json!({"type": "reasoning", "text": text});
                parts.push(plain(&with(written, options)));
            }
            Content::ToolCall(call) => parts.push(tool_call(call, options)),
            Content::Media(media) => {
                let written = medium(position, media, writing, version);
                parts.push(plain(&with(written, options)));
            }
            Content::ProviderItem(item) => {
                match raw(&item.json).filter(|_| item.provider == READER) {
                    Some(item) => parts.push(item),
                    None => writing.note_unsupported_item(position),
                }
            }
            Content::ToolResult(_) | Content::Unknown(_) => {}
        }
    }
    parts
}

/// A tool call. Arguments that are not a JSON object are written as the text that the model wrote.
fn tool_call(call: &ToolCall, options: Option<Value>) -> Box<RawValue> {
    let input = raw(&call.arguments).filter(|_| call.has_object());
    let mut part = Body::default();
    part.set("type", "tool-call");
    part.set("toolCallId", call.id.as_str());
    part.set("toolName", &call.name);
    part.set(
        "input",
        input.unwrap_or_else(|| plain(&json!(call.arguments))),
    );
    part.set_some("providerOptions", options);
    part.raw()
}

fn results(writing: &mut Exporter<'_>, version: Version) -> Vec<Box<RawValue>> {
    let mut parts = Vec::new();
    for (position, stored) in writing.parts() {
        let Content::ToolResult(result) = &stored.part.content else {
            continue;
        };
        for media in result.media() {
            writing.check_content(position, media);
        }
        let fails = matches!(result.outcome, ToolOutcome::Error | ToolOutcome::Denied);
        if fails && result.media().next().is_some() {
            writing.note_unsupported_outcome(position, result.outcome);
        }
        let own = authorship::attached_metadata(KIND, &stored.part);
        let is_json = own.is_some_and(|own| own.contains_key("json"));
        let written = json!({
            "type": "tool-result", "toolCallId": result.call.as_str(), "toolName": result.name,
            "output": output(result, is_json, writing.contents(), version),
        });
        parts.push(plain(&with(written, kept_options(&stored.part))));
    }
    parts
}

/// A file. If its content is not available, writes text instead and notes it.
fn medium(position: usize, media: &Media, writing: &mut Exporter<'_>, version: Version) -> Value {
    writing.check_content(position, media);
    file(media, writing.contents(), version)
}
