//! A prompt as the body of a request. Pure, and the same for the same prompt.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{
    contents::{Conversation, conversation},
    family::Family,
    names, options,
    wire::{Data, Function, Json, OwnPart, Part, Tools},
};
use crate::{
    model::{Prompt, PromptNote, Tool},
    provider::{ModelInfo, body::Body},
};

/// How requests to a model are written.
#[derive(Debug, Clone)]
pub(super) struct Manner<'a> {
    /// Configured name of the provider.
    pub(super) provider: &'a str,
    /// What is known of the model.
    pub(super) model: ModelInfo,
}

/// A request as it is sent.
#[derive(Debug)]
pub(super) struct Encoded {
    /// Its body.
    pub(super) body: Vec<u8>,
    /// What was left out of the conversation.
    pub(super) left_out: Vec<PromptNote>,
}

/// The request for a prompt.
pub(super) fn request(prompt: &Prompt, manner: &Manner<'_>) -> Encoded {
    let (mut body, left_out) = content(prompt, manner);
    options::write(&mut body, prompt, &manner.model);
    Encoded {
        body: body.bytes(),
        left_out,
    }
}

/// The question how many tokens a prompt has. At Vertex AI the prompt is the question; elsewhere it
/// is within it, with the model's name.
pub(super) fn question(prompt: &Prompt, manner: &Manner<'_>, vertex: bool) -> Vec<u8> {
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

/// What the model reads, without how it is to answer.
fn content(prompt: &Prompt, manner: &Manner<'_>) -> (Body, Vec<PromptNote>) {
    let family = Family::of(&manner.model);
    let Conversation {
        system,
        contents,
        left_out,
    } = conversation(prompt, manner.provider, family);
    let mut body = Body::default();
    body.set("contents", contents);
    if !system.is_empty() {
        let part = |text| {
            Part::Own(OwnPart {
                data: Data::Text(Cow::Borrowed(text)),
                thought: false,
                thought_signature: None,
            })
        };
        let parts: Vec<Part<'_>> = system.into_iter().map(part).collect();
        body.set("systemInstruction", json!({ "parts": parts }));
    }
    let tools = tools(prompt);
    if !tools.is_empty() {
        body.set("tools", tools);
    }
    (body, left_out)
}

fn tools(prompt: &Prompt) -> Vec<Tools<'_>> {
    let functions: Vec<Function<'_>> = prompt.tools.iter().map(function).collect();
    let host = (!functions.is_empty()).then_some(Tools::Host { functions });
    let service = prompt.provider_tools.iter();
    let service = service.map(|json| Tools::Service(Json(Cow::Borrowed(json))));
    host.into_iter().chain(service).collect()
}

fn function(tool: &Tool) -> Function<'_> {
    let schema = tool.input_schema.as_deref();
    Function {
        name: names::sent(&tool.name),
        description: &tool.description,
        parameters_json_schema: schema.map(|json| Json(lone_references(json))),
    }
}

/// A schema in which nothing is beside a reference: the service takes fields there only that begin with
/// `$`.
fn lone_references(schema: &str) -> Cow<'_, str> {
    if !schema.contains("\"$ref\"") {
        return Cow::Borrowed(schema);
    }
    let Ok(mut value) = serde_json::from_str::<Value>(schema) else {
        return Cow::Borrowed(schema);
    };
    let before = value.clone();
    remove_beside_references(&mut value);
    if value == before {
        Cow::Borrowed(schema)
    } else {
        Cow::Owned(value.to_string())
    }
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

/// The path of a model: a name with a slash is one already, such as that of a tuned model.
pub(super) fn resource(model: &str) -> String {
    if model.contains('/') {
        model.to_owned()
    } else {
        format!("models/{model}")
    }
}
