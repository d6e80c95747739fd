//! Converts stored messages to messages of the AI SDK, unchanged in content.

use serde_json::{Value, json, value::RawValue};

use super::{
    READER, Version,
    export::{file, options, text_part, tool_result, with},
    import::kept_options,
};
use crate::{
    model::{Content, Media, Role, ToolCall, ToolOutcome},
    provider::{
        body::{Body, plain},
        foreign::{self, Exporter, raw},
        inputs::{self, Input},
    },
};

/// Converts a message.
pub(crate) fn write(writing: &mut Exporter<'_>, version: Version) -> Vec<Box<RawValue>> {
    let (role, parts) = match writing.message.role {
        Role::System => return instructions(writing),
        Role::User => ("user", user_parts(writing, version)),
        Role::Assistant => ("assistant", answer(writing, version)),
        Role::Tool => ("tool", results(writing, version)),
    };
    foreign::message(role, "content", parts)
}

/// A system message, whose content is one text. The options of its part become those of the
/// message.
fn instructions(writing: &Exporter<'_>) -> Vec<Box<RawValue>> {
    let message = writing.message;
    let texts: Vec<&str> = message.texts().filter(|text| !text.is_empty()).collect();
    let first = message.parts.first();
    let options = first.and_then(|stored| kept_options(&stored.part));
    let written = json!({"role": "system", "content": texts.join("\n\n")});
    vec![plain(&with(written, options))]
}

fn user_parts(writing: &mut Exporter<'_>, version: Version) -> Vec<Box<RawValue>> {
    let mut parts = Vec::new();
    for (position, stored) in writing.parts() {
        let written = match inputs::of(&stored.part.content) {
            Some(Input::Text(text)) => text_part(text),
            Some(Input::Media(media)) => medium(position, media, writing, version),
            None => continue,
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
                if !writing.has_reasoning(position, part, text, options.is_some()) {
                    continue;
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
                parts.extend(writing.item(position, item, item.provider == READER));
            }
            Content::ToolResult(_) | Content::Unknown(_) => {}
        }
    }
    parts
}

/// A tool call. Arguments that are not a JSON object are written as the text that the model wrote.
fn tool_call(call: &ToolCall, options: Option<Value>) -> Box<RawValue> {
    let input = raw(&call.arguments).filter(|_| call.has_object());
    let input = input.unwrap_or_else(|| plain(&json!(call.arguments)));
    let mut part = Body::default();
    part.set("type", "tool-call");
    part.set("toolCallId", call.id.as_str());
    part.set("toolName", &call.name);
    part.set("input", input);
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
        let written = tool_result(result, &stored.part, writing.contents, version);
        parts.push(plain(&written));
    }
    parts
}

/// A file. If its content is not available, writes text instead and notes it.
fn medium(position: usize, media: &Media, writing: &mut Exporter<'_>, version: Version) -> Value {
    writing.check_content(position, media);
    file(media, writing.contents, version)
}
