//! Encodes a prompt as a request body. Encoding is pure and deterministic.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::{Value, json, value::RawValue};

use super::{
    contents::conversation,
    family::Family,
    names, options,
    wire::{Function, Part},
};
use crate::{
    model::{Prompt, PromptFormat, PromptNote, Tool},
    provider::{
        ModelInfo, Request,
        body::{self, Body, Json},
    },
};

/// How requests to a model are encoded.
#[derive(Debug, Clone)]
pub(super) struct EncodeOptions<'a> {
    /// Configured name of the provider.
    pub(super) provider: &'a str,
    pub(super) model: ModelInfo,
}

/// Encodes the request for a response.
pub(super) fn request(prompt: &Prompt, manner: &EncodeOptions<'_>) -> Request {
    let (mut body, left_out) = content(prompt, manner);
    options::write(&mut body, prompt, &manner.model);
    Request { shape: PromptFormat::Gemini, body: body.bytes(), left_out }
}

/// Encodes the request for a token count. At Vertex AI it is the prompt itself; elsewhere it
/// contains the prompt and the model's name.
pub(super) fn count_request(prompt: &Prompt, manner: &EncodeOptions<'_>, vertex: bool) -> Vec<u8> {
    let (mut body, _) = content(prompt, manner);
    if vertex {
        return body.bytes();
    }
    body.set("model", resource(&prompt.model));
    let mut question = Body::default();
    question.set("generateContentRequest", Json(text(&body.bytes())));
    question.bytes()
}

fn text(json: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(json)
}

/// Encodes what the model reads, without the generation settings.
fn content(prompt: &Prompt, manner: &EncodeOptions<'_>) -> (Body, Vec<PromptNote>) {
    let family = Family::of(&manner.model);
    let written = conversation(prompt, manner.provider, family);
    let mut body = Body::default();
    body.set("contents", written.contents);
    if !written.system.is_empty() {
        let parts: Vec<Part<'_>> = written.system.into_iter().map(Part::text).collect();
        body.set("systemInstruction", json!({ "parts": parts }));
    }
    body.set_list("tools", tools(prompt));
    (body, written.left_out)
}

fn tools(prompt: &Prompt) -> Vec<Box<RawValue>> {
    let functions: Vec<Function<'_>> = prompt.tools.iter().map(function).collect();
    let host = (!functions.is_empty()).then(|| BTreeMap::from([("functionDeclarations", functions)]));
    body::tools(host.into_iter(), prompt)
}

fn function(tool: &Tool) -> Function<'_> {
    let schema = tool.input_schema.as_deref();
    Function {
        name: names::escape(&tool.name),
        description: &tool.description,
        parameters_json_schema: schema.map(|json| Json(lone_references(json))),
    }
}

/// Removes all fields next to a `$ref` from a schema, except those that start with `$`: the service
/// accepts no others there.
fn lone_references(schema: &str) -> Cow<'_, str> {
    if !schema.contains("\"$ref\"") {
        return Cow::Borrowed(schema);
    }
    let Ok(mut value) = serde_json::from_str::<Value>(schema) else {
        return Cow::Borrowed(schema);
    };
    let before = value.clone();
    remove_beside_references(&mut value);
    if value == before { Cow::Borrowed(schema) } else { Cow::Owned(value.to_string()) }
}

fn remove_beside_references(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("$ref").is_some_and(Value::is_string) {
                fields.retain(|name, _| name.starts_with('$'));
            }
            fields.values_mut().for_each(remove_beside_references);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_beside_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The resource path of a model. A name with a slash, such as that of a tuned model, is already a
/// path.
pub(super) fn resource(model: &str) -> String {
    if model.contains('/') { model.to_owned() } else { format!("models/{model}") }
}
