//! Converts stored messages to items of the Responses API, unchanged in content.

use serde_json::{Map, Value, json, value::RawValue};

use super::{KIND, assistant_items, custom_calls::CustomCalls, import::is_hosted};
use crate::{
    model::{
        Content, Media, OutputPart, Part, Role, ToolCall, ToolResult,
        media::{Kind, UNSUPPORTED_TEXT},
    },
    provider::{
        authorship,
        body::{Body, plain},
        foreign::{self, Exporter, MediaLocation, named},
        inputs::{self, Input},
    },
};

/// Converts a message.
pub(crate) fn write(writing: &mut Exporter<'_>, text_calls: &CustomCalls) -> Vec<Box<RawValue>> {
    match writing.message.role {
        Role::System => spoken("developer", writing),
        Role::User => spoken("user", writing),
        Role::Assistant => answer(writing),
        Role::Tool => results(writing, text_calls),
    }
}

fn spoken(role: &str, writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let inputs = writing.inputs();
    let pieces = inputs.map(|(position, input)| piece(position, input, writing));
    let content: Vec<Value> = pieces.collect();
    let item = json!({"type": "message", "role": role, "content": content});
    vec![plain(&item)]
}

fn piece<'a>(position: usize, input: Input<'a>, writing: &mut Exporter<'a>) -> Value {
    match input {
        Input::Text(text) => input_text(text),
        Input::Media(media) => medium(position, media, writing),
    }
}

/// Parts of an assistant message that are not an item yet.
#[derive(Default)]
struct Pending {
    /// Visible text of reasoning whose item may continue.
    thought: Vec<String>,
    /// Texts of one message item, and the id and phase of that item.
    words: Vec<Box<RawValue>>,
    names: Map<String, Value>,
}

fn answer(writing: &mut Exporter<'_>) -> Vec<Box<RawValue>> {
    let mut items = Vec::new();
    let mut pending = Pending::default();
    for (position, stored) in writing.parts() {
        let part = &stored.part;
        let own = authorship::attached_metadata(KIND, part).unwrap_or_default();
        match &part.content {
            Content::Reasoning { text, .. } => {
                pending.end_words(&mut items);
                if own.is_empty() && part.provider_metadata.is_some() {
                    writing.note_unsupported_signature(position);
                }
                if !text.is_empty() {
                    pending.thought.push(text.clone());
                } else if !own.contains_key("encrypted_content") {
                    writing.note_hidden_reasoning(position);
                }
                if own.contains_key("encrypted_content") {
                    items.push(reasoning(std::mem::take(&mut pending.thought), &own));
                }
            }
            Content::Text(text) if !text.is_empty() => {
                pending.say(output_text(text, part), own, &mut items);
            }
            Content::Text(_) => {}
            Content::Refusal(text) => {
                let piece = plain(&json!({"type": "refusal", "refusal": text}));
                pending.say(piece, own, &mut items);
            }
            Content::ToolCall(made) => {
                pending.end(&mut items);
                items.push(call(made, assistant_items::is_custom(part), own));
            }
            Content::ProviderItem(item) => {
                pending.end(&mut items);
                items.extend(writing.item(position, item, is_hosted(&item.kind)));
            }
            Content::Media(media) => writing.note_unsupported_media(position, media),
            Content::ToolResult(_) | Content::Unknown(_) => {}
        }
    }
    pending.end(&mut items);
    items
}

impl Pending {
    /// Adds text to the message item with the same id and phase, or starts another item.
    fn say(&mut self, piece: Box<RawValue>, names: Map<String, Value>, items: &mut Vec<Box<RawValue>>) {
        self.end_thought(items);
        if self.names != names {
            self.end_words(items);
        }
        self.names = names;
        self.words.push(piece);
    }

    fn end(&mut self, items: &mut Vec<Box<RawValue>>) {
        self.end_thought(items);
        self.end_words(items);
    }

    /// Ends reasoning without encrypted content.
    fn end_thought(&mut self, items: &mut Vec<Box<RawValue>>) {
        if !self.thought.is_empty() {
            items.push(reasoning(std::mem::take(&mut self.thought), &Map::new()));
        }
    }

    fn end_words(&mut self, items: &mut Vec<Box<RawValue>>) {
        let words = std::mem::take(&mut self.words);
        let names = std::mem::take(&mut self.names);
        if words.is_empty() {
            return;
        }
        let mut item = Body::default();
        item.set("type", "message");
        item.set("role", "assistant");
        for name in ["id", "phase"] {
            item.set_some(name, names.get(name));
        }
        item.set("content", words);
        items.push(item.raw());
    }
}

fn reasoning(shown: Vec<String>, own: &Map<String, Value>) -> Box<RawValue> {
    let is_raw = own.get("raw") == Some(&Value::Bool(true));
    let (name, kind) = if is_raw { ("content", "reasoning_text") } else { ("summary", "summary_text") };
    let pieces = shown.iter().map(|text| json!({"type": kind, "text": text}));
    let pieces: Vec<Value> = pieces.collect();
    let mut item = Body::default();
    item.set("type", "reasoning");
    item.set("summary", Value::Array(Vec::new()));
    item.set(name, pieces);
    for name in ["id", "encrypted_content"] {
        item.set_some(name, own.get(name));
    }
    item.raw()
}

fn call(call: &ToolCall, is_custom: bool, own: Map<String, Value>) -> Box<RawValue> {
    let mut item = Body::default();
    item.set("call_id", call.id.as_str());
    item.set("name", &call.name);
    item.set_some("id", own.get("id"));
    if is_custom {
        item.set("type", "custom_tool_call");
        item.set("input", assistant_items::custom_input(call));
    } else {
        item.set("type", "function_call");
        item.set("arguments", &call.arguments);
        item.set_some("caller", own.get("caller"));
    }
    item.raw()
}

/// A text with the citations that came from this kind of service.
fn output_text(text: &str, part: &Part) -> Box<RawValue> {
    let is_known = |kind: &str| kind.ends_with("_citation") || kind == "file_path";
    let mut piece = Body::default();
    piece.set("type", "output_text");
    piece.set("text", text);
    piece.set("annotations", foreign::sources(part, is_known));
    piece.raw()
}

fn results(writing: &mut Exporter<'_>, text_calls: &CustomCalls) -> Vec<Box<RawValue>> {
    let results = writing.results().map(|(position, result)| {
        writing.note_unsupported_outcome(position, result.outcome);
        let kind = match text_calls.contains(&result.call) {
            true => "custom_tool_call_output",
            false => "function_call_output",
        };
        let output = output(position, result, writing);
        plain(&json!({"type": kind, "call_id": result.call.as_str(), "output": output}))
    });
    results.collect()
}

fn output<'a>(position: usize, result: &'a ToolResult, writing: &mut Exporter<'a>) -> Value {
    match result.parts.as_slice() {
        [] => json!(""),
        [OutputPart::Text(text)] => json!(text),
        _ => {
            let given = inputs::of_result(result);
            Value::Array(given.map(|input| piece(position, input, writing)).collect())
        }
    }
}

fn input_text(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}

fn medium<'a>(position: usize, media: &'a Media, writing: &mut Exporter<'a>) -> Value {
    let piece = match (writing.media_location(position, media), media.kind()) {
        (None, _) => return input_text(UNSUPPORTED_TEXT),
        (Some(place), Kind::Image) => {
            let url = place.url(media);
            return json!({"type": "input_image", "image_url": url, "detail": "auto"});
        }
        (Some(place), Kind::Audio | Kind::Video | Kind::Document) => match place {
            MediaLocation::Inline(_) => {
                json!({"type": "input_file", "file_data": place.url(media)})
            }
            MediaLocation::Url(url) => json!({"type": "input_file", "file_url": url}),
        },
    };
    named(piece, "filename", media)
}
