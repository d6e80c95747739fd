//! Encodes the generation settings that the service supports.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json, value::RawValue};

use super::{
    KIND,
    dialect::{Dialect, EncryptedReasoning},
    encode_options::EncodeOptions,
};
use crate::{
    model::{
        Generation, Prompt,
        generation::{ReasoningEffort, ResponseFormat, Setting, ToolChoice, Unsupported},
    },
    provider::{
        body::{Body, options_of},
        http::lenient,
        info::{ModelInfo, rejected_settings},
        openai::options::{
            COMMON_EFFORTS, OPENAI_EFFORTS, can_be_strict, is_openai_reasoning_model,
        },
    },
};

#[cfg(test)]
mod tests;

/// Fields that provider options cannot override: overriding them would send a conversation that
/// differs from the stored one.
const RESERVED_FIELDS: &[&str] = &[
    "model",
    "input",
    "instructions",
    "tools",
    "stream",
    "previous_response_id",
    "conversation",
    "prompt",
    "background",
];

/// The service's minimum for `max_output_tokens`.
const MIN_OUTPUT_TOKENS: u32 = 16;

/// Limit on the number of stop sequences. The API has none.
pub(super) const MAX_STOPS: usize = 0;

/// The value of `include` that requests encrypted reasoning, which is needed to send reasoning
/// back.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// Whether a model is known to reason, or has the name of an OpenAI reasoning model.
pub(super) fn is_reasoning_model(model: &ModelInfo) -> bool {
    let name = model.name.rsplit('/').next().unwrap_or_default();
    match &model.reasoning_efforts {
        Some(levels) => !levels.is_empty(),
        None => is_openai_reasoning_model(name),
    }
}

/// The settings with the effort replaced by the model's nearest level. If its levels are unknown,
/// those that nearly every model supports are assumed.
pub(super) fn nearest_supported(
    dialect: &Dialect,
    model: &ModelInfo,
    wanted: &Generation,
) -> Generation {
    let levels: &[ReasoningEffort] = if dialect.openai_models {
        &OPENAI_EFFORTS
    } else {
        &COMMON_EFFORTS
    };
    match (wanted.reasoning_effort, &model.reasoning_efforts) {
        (Some(effort), None) => Generation {
            reasoning_effort: effort.nearest_of(levels),
            ..wanted.clone()
        },
        (Some(_), Some(_)) | (None, _) => model.nearest_supported(wanted),
    }
}

/// The settings that the model does not support.
pub(super) fn unsupported_settings(
    dialect: &Dialect,
    model: &ModelInfo,
    wanted: &Generation,
) -> Vec<Unsupported> {
    let reasons = is_reasoning_model(model);
    let no_sampling = reasons && dialect.openai_models;
    let known = dialect.openai_models || model.reasoning_efforts.is_some();
    let unlisted = dialect.listed_efforts && model.reasoning_efforts.is_none();
    let no_effort = known && !reasons || unlisted;
    let one_call = reasons && dialect.openai_models && model.name.starts_with('o');
    let random = "Reasoning models do not accept a temperature.";
    let fixed = "The service does not support this setting.";
    let table = [
        (
            Setting::Temperature,
            wanted.temperature.is_some() && !dialect.limits,
            fixed,
        ),
        (
            Setting::Temperature,
            wanted.temperature.is_some() && no_sampling,
            random,
        ),
        (
            Setting::TopP,
            wanted.top_p.is_some() && !dialect.limits,
            fixed,
        ),
        (
            Setting::TopP,
            wanted.top_p.is_some() && no_sampling,
            "Reasoning models do not accept top_p.",
        ),
        (Setting::TopK, wanted.top_k.is_some(), fixed),
        (Setting::Seed, wanted.seed.is_some(), fixed),
        (
            Setting::StopSequences,
            wanted.stop_sequences.len() > MAX_STOPS,
            "The service does not support stop sequences.",
        ),
        (
            Setting::ReasoningEffort,
            wanted.reasoning_effort.is_some() && no_effort,
            "The model does not support a reasoning effort.",
        ),
        (
            Setting::ReasoningBudget,
            wanted.reasoning_budget_tokens.is_some(),
            "The service does not accept a reasoning budget.",
        ),
        (
            Setting::ParallelToolCalls,
            wanted.parallel_tool_calls.is_some() && one_call,
            "The model does not support parallel tool calls.",
        ),
    ];
    rejected_settings(table.into_iter().chain(model.refusals(wanted)))
}

/// Writes the settings, and the provider options last.
pub(super) fn write(body: &mut Body, prompt: &Prompt, form: EncodeOptions<'_>) {
    let Generation {
        temperature,
        top_p,
        top_k: _,
        stop_sequences: _,
        seed: _,
        reasoning_effort: _,
        reasoning_budget_tokens: _,
        tool_choice: _,
        parallel_tool_calls: _,
        response_format: _,
        provider_options: _,
    } = &prompt.generation;
    if form.dialect.limits {
        body.set_some("temperature", temperature.map(|number| number.get()));
        body.set_some("top_p", top_p.map(|number| number.get()));
        let limit = prompt.max_output_tokens;
        body.set_some(
            "max_output_tokens",
            limit.map(|most| most.max(MIN_OUTPUT_TOKENS)),
        );
    }
    let mut own = own_options(prompt);
    let asked = match form.dialect.encrypted_reasoning {
        EncryptedReasoning::Always => true,
        EncryptedReasoning::Reasoning => form.reasons,
        EncryptedReasoning::Never => false,
    };
    body.set_some("include", included(asked, own.remove("include")));
    write_shared(body, prompt, form, &mut own);
    for (key, value) in own {
        body.set(&key, value);
    }
}

/// Writes only the settings that affect the token count of the prompt.
pub(super) fn write_counted(body: &mut Body, prompt: &Prompt, form: EncodeOptions<'_>) {
    write_shared(body, prompt, form, &mut own_options(prompt));
}

/// Writes the settings that add tokens to the prompt, merged with provider options for the same
/// fields.
fn write_shared(
    body: &mut Body,
    prompt: &Prompt,
    form: EncodeOptions<'_>,
    own: &mut BTreeMap<String, &RawValue>,
) {
    let generation = &prompt.generation;
    let effort = generation.reasoning_effort;
    let mut reasoning = Map::new();
    if let Some(effort) = effort {
        reasoning.insert("effort".to_owned(), json!(effort));
    }
    if form.summaries && form.reasons && effort != Some(ReasoningEffort::None) {
        reasoning.insert("summary".to_owned(), json!("auto"));
    }
    body.set_some("reasoning", merged(reasoning, own.remove("reasoning")));
    let format = generation.response_format.as_ref();
    let format = format.map(|it| self::format(it, form.dialect));
    let mut text = Map::new();
    match format {
        Some(format) if form.dialect.chat_format => {
            body.set("response_format", as_in_chat(format));
        }
        Some(format) => {
            text.insert("format".to_owned(), format);
        }
        None => {}
    }
    body.set_some("text", merged(text, own.remove("text")));
    if !prompt.tools.is_empty() || !prompt.provider_tools.is_empty() {
        let choice = generation.tool_choice.as_ref().map(choice);
        body.set_some("tool_choice", choice);
        body.set_some("parallel_tool_calls", generation.parallel_tool_calls);
        for key in ["tool_choice", "parallel_tool_calls"] {
            body.set_some(key, own.remove(key));
        }
    }
}

/// The host's provider options.
fn own_options(prompt: &Prompt) -> BTreeMap<String, &RawValue> {
    let mut own = options_of(KIND, prompt.generation.provider_options.as_deref());
    own.retain(|key, _| !RESERVED_FIELDS.contains(&key.as_str()));
    own
}

/// Merges an object of ours with the fields of a provider option. An option that is not an object
/// replaces it. Returns `None` if the result is empty.
fn merged(mut ours: Map<String, Value>, own: Option<&RawValue>) -> Option<Value> {
    match own.and_then(|own| lenient::value(own.get())) {
        Some(Value::Object(own)) => ours.extend(own),
        Some(other) => return Some(other),
        None => {}
    }
    (!ours.is_empty()).then_some(Value::Object(ours))
}

/// The `include` field: what the host requests, and the encrypted reasoning that is sent back.
fn included(asked: bool, own: Option<&RawValue>) -> Option<Vec<Value>> {
    let own = own.and_then(|own| serde_json::from_str::<Vec<Value>>(own.get()).ok());
    let mut included = own.unwrap_or_default();
    if asked && !included.contains(&json!(ENCRYPTED)) {
        included.push(json!(ENCRYPTED));
    }
    (!included.is_empty()).then_some(included)
}

fn choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "name": name}),
    }
}

/// Converts a response format to the form of Chat Completions, which nests all fields except
/// `type`.
fn as_in_chat(mut format: Value) -> Value {
    let kind = format["type"].take();
    if kind != "json_schema" {
        return json!({"type": kind});
    }
    if let Some(form) = format.as_object_mut() {
        form.remove("type");
    }
    json!({"type": kind, "json_schema": format})
}

fn format(format: &ResponseFormat, dialect: &Dialect) -> Value {
    let ResponseFormat {
        schema,
        name,
        strict,
    } = format;
    let schema = schema.as_deref();
    let Some(schema) = schema.and_then(|schema| serde_json::from_str::<Value>(schema).ok()) else {
        return json!({"type": "json_object"});
    };
    let can = dialect.openai_models && can_be_strict(&schema);
    let mut form = json!({"type": "json_schema", "name": name, "schema": schema});
    if let Some(strict) = strict.or(can.then_some(true)) {
        form["strict"] = json!(strict);
    }
    form
}
