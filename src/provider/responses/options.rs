//! How the model is to answer, as far as the service has settings for it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json, value::RawValue};

use super::{
    KIND,
    dialect::{Dialect, Encrypted},
    form::Form,
};
use crate::{
    model::{
        Generation, Prompt,
        generation::{ReasoningEffort, ResponseFormat, Setting, ToolChoice, Unsupported},
    },
    provider::{
        body::{Body, options_of},
        http::lenient,
        info::{ModelInfo, refused},
        openai::options::{COARSE, OF_OPENAI, can_be_strict, thinks},
    },
};

#[cfg(test)]
mod tests;

/// Fields that no option replaces: what is said would not be what is stored.
const OURS: &[&str] = &[
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

/// Fewest tokens of an answer that can be asked for.
const LEAST_OUTPUT: u32 = 16;

/// Stop sequences at most: the service has none.
pub(super) const MAX_STOPS: usize = 0;

/// What must be asked for to send reasoning back.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// Whether a model is known to reason, or has the name of one of OpenAI's that does.
pub(super) fn reasons(model: &ModelInfo) -> bool {
    let name = model.name.rsplit('/').next().unwrap_or_default();
    match &model.reasoning_efforts {
        Some(levels) => !levels.is_empty(),
        None => thinks(name),
    }
}

/// The settings, the effort as the nearest level of the model. Where its levels are not known, those
/// are taken for its own that hardly any lacks.
pub(super) fn fitted(dialect: &Dialect, model: &ModelInfo, wanted: &Generation) -> Generation {
    let levels: &[ReasoningEffort] = if dialect.openai_models {
        &OF_OPENAI
    } else {
        &COARSE
    };
    match (wanted.reasoning_effort, &model.reasoning_efforts) {
        (Some(effort), None) => Generation {
            reasoning_effort: effort.nearest_of(levels),
            ..wanted.clone()
        },
        (Some(_), Some(_)) | (None, _) => model.fitted(wanted),
    }
}

/// The settings that the model does not support.
pub(super) fn cannot_take(
    dialect: &Dialect,
    model: &ModelInfo,
    wanted: &Generation,
) -> Vec<Unsupported> {
    let reasons = reasons(model);
    let no_sampling = reasons && dialect.openai_models;
    let known = dialect.openai_models || model.reasoning_efforts.is_some();
    let unlisted = dialect.listed_efforts && model.reasoning_efforts.is_none();
    let no_effort = known && !reasons || unlisted;
    let one_call = reasons && dialect.openai_models && model.name.starts_with('o');
    let random = "Models that reason take no temperature.";
    let fixed = "The service has no such setting.";
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
            "Models that reason take no top_p.",
        ),
        (Setting::TopK, wanted.top_k.is_some(), fixed),
        (Setting::Seed, wanted.seed.is_some(), fixed),
        (
            Setting::StopSequences,
            wanted.stop_sequences.len() > MAX_STOPS,
            "The service has no stop sequences.",
        ),
        (
            Setting::ReasoningEffort,
            wanted.reasoning_effort.is_some() && no_effort,
            "The model has no reasoning effort.",
        ),
        (
            Setting::ReasoningBudget,
            wanted.reasoning_budget_tokens.is_some(),
            "The service takes no budget for reasoning.",
        ),
        (
            Setting::ParallelToolCalls,
            wanted.parallel_tool_calls.is_some() && one_call,
            "The model never calls several tools at once.",
        ),
    ];
    refused(table.into_iter().chain(model.refusals(wanted)))
}

/// Writes the settings, the provider's own options last.
pub(super) fn write(body: &mut Body, prompt: &Prompt, form: Form<'_>) {
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
            limit.map(|most| most.max(LEAST_OUTPUT)),
        );
    }
    let mut own = own_options(prompt);
    let asked = match form.dialect.encrypted_reasoning {
        Encrypted::Always => true,
        Encrypted::Reasoning => form.reasons,
        Encrypted::Never => false,
    };
    body.set_some("include", included(asked, own.remove("include")));
    write_shared(body, prompt, form, &mut own);
    for (key, value) in own {
        body.set(&key, value);
    }
}

/// Writes the settings that the model reads, too.
pub(super) fn write_counted(body: &mut Body, prompt: &Prompt, form: Form<'_>) {
    write_shared(body, prompt, form, &mut own_options(prompt));
}

/// The settings that cost tokens, with what the options say of the same fields.
fn write_shared(
    body: &mut Body,
    prompt: &Prompt,
    form: Form<'_>,
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

/// What the host says beyond our settings.
fn own_options(prompt: &Prompt) -> BTreeMap<String, &RawValue> {
    let mut own = options_of(KIND, prompt.generation.provider_options.as_deref());
    own.retain(|key, _| !OURS.contains(&key.as_str()));
    own
}

/// An object of ours with the fields of the host's. `None` means there is nothing to say; anything
/// but an object is said in its place.
fn merged(mut ours: Map<String, Value>, own: Option<&RawValue>) -> Option<Value> {
    match own.and_then(|own| lenient::value(own.get())) {
        Some(Value::Object(own)) => ours.extend(own),
        Some(other) => return Some(other),
        None => {}
    }
    (!ours.is_empty()).then_some(Value::Object(ours))
}

/// What the answer is to hold beside itself: what the host wants, and what goes back.
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

/// The form of an answer as Chat Completions has it: all but its type stands under the name of it.
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
