//! Encodes the generation settings that the service supports.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json, value::RawValue};

use super::{KIND, dialect::Dialect, encode_options::EncodeOptions};
use crate::{
    model::{
        Generation, Prompt,
        generation::{ReasoningEffort, Setting, Unsupported, UpTo},
        service_rules::EncryptedReasoning,
    },
    provider::{
        ModelInfo,
        body::{Body, options_of, tool_choice},
        http::lenient,
        openai::options::{is_openai_reasoning_model, nested, response_format},
        refusals::{self as why, rejected},
        rules::{COMMON_LEVELS, COMMON_LEVELS_AND_NONE},
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
pub(super) fn nearest_supported(dialect: &Dialect, model: &ModelInfo, wanted: &Generation) -> Generation {
    let levels: &[ReasoningEffort] = match dialect.openai_models {
        true => &COMMON_LEVELS,
        false => &COMMON_LEVELS_AND_NONE,
    };
    match (wanted.reasoning_effort, &model.reasoning_efforts) {
        (Some(effort), None) => Generation { reasoning_effort: effort.nearest_of(levels), ..wanted.clone() },
        (Some(_), Some(_)) | (None, _) => model.nearest_supported(wanted),
    }
}

/// The settings that the model does not support.
pub(super) fn unsupported_settings(dialect: &Dialect, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
    let reasons = is_reasoning_model(model);
    let no_sampling = reasons && dialect.openai_models;
    let known = dialect.openai_models || model.reasoning_efforts.is_some();
    let unlisted = dialect.listed_efforts && model.reasoning_efforts.is_none();
    let no_effort = known && !reasons || unlisted;
    let one_call = reasons && dialect.openai_models && model.name.starts_with('o');
    let no_limits = !dialect.limits;
    let table = [
        (Setting::Temperature, no_limits, why::SERVICE),
        (Setting::Temperature, no_sampling, why::NO_TEMPERATURE),
        (Setting::TopP, no_limits, why::SERVICE),
        (Setting::TopP, no_sampling, why::NO_TOP_P),
        (Setting::TopK, true, why::SERVICE),
        (Setting::Seed, true, why::SERVICE),
        (Setting::StopSequences, true, why::SERVICE_STOPS),
        (Setting::ReasoningEffort, no_effort, why::EFFORT),
        (Setting::ReasoningBudget, true, why::SERVICE_BUDGET),
        (Setting::ParallelToolCalls, one_call, why::PARALLEL),
    ];
    rejected(wanted, table.into_iter().chain(model.refusals(wanted)))
}

/// Writes the settings, and the provider options last.
pub(super) fn write(body: &mut Body, prompt: &Prompt, form: EncodeOptions<'_>) {
    let generation = &prompt.generation;
    if form.dialect.limits {
        body.set_some("temperature", generation.temperature.map(UpTo::get));
        body.set_some("top_p", generation.top_p.map(UpTo::get));
        let limit = prompt.max_output_tokens;
        let limit = limit.map(|most| most.max(MIN_OUTPUT_TOKENS));
        body.set_some("max_output_tokens", limit);
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
fn write_shared(body: &mut Body, prompt: &Prompt, form: EncodeOptions<'_>, own: &mut BTreeMap<String, &RawValue>) {
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
    let format = format.map(|it| response_format(it, form.dialect.openai_models));
    let mut text = Map::new();
    match format {
        Some(format) if form.dialect.chat_format => {
            body.set("response_format", nested(format));
        }
        Some(format) => {
            text.insert("format".to_owned(), format);
        }
        None => {}
    }
    body.set_some("text", merged(text, own.remove("text")));
    if !prompt.tools.is_empty() || !prompt.provider_tools.is_empty() {
        let of_tool = |name: &str| json!({"type": "function", "name": name});
        let choice = generation.tool_choice.as_ref();
        body.set_some("tool_choice", choice.map(|it| tool_choice(it, of_tool)));
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
