//! Encodes the generation settings that generateContent supports.

use serde_json::{Map, Value, json};

use super::{
    KIND,
    family::{Family, Thinking},
    names,
};
use crate::{
    model::{
        Generation, Prompt,
        generation::{ReasoningEffort, ResponseFormat, Setting, ToolChoice, Unsupported},
    },
    provider::{
        ModelInfo,
        body::{Body, options_of, plain_settings},
        refusals::{self as why, rejected},
        rules::{COMMON_LEVELS, budget_tokens},
    },
};

/// Fields that provider options cannot override: overriding them would send a conversation that
/// differs from the stored one.
const RESERVED_FIELDS: &[&str] = &["model", "contents", "systemInstruction", "tools"];

/// Objects into which the fields of provider options are merged.
const MERGED: [&str; 2] = ["generationConfig", "toolConfig"];

/// Limit on the number of stop sequences.
pub(super) const MAX_STOPS: usize = 5;

/// The settings with the effort replaced by the model's nearest level.
pub(super) fn nearest_supported(model: &ModelInfo, wanted: &Generation) -> Generation {
    let nearest = |effort: ReasoningEffort| match Family::of(model).thinking {
        Thinking::Level => effort.nearest_of(model.effort_levels().unwrap_or(&COMMON_LEVELS)),
        Thinking::Budget { off: false, .. } if effort == ReasoningEffort::None => Some(ReasoningEffort::Minimal),
        Thinking::Budget { .. } | Thinking::Never => Some(effort),
    };
    Generation { reasoning_effort: wanted.reasoning_effort.and_then(nearest), ..wanted.clone() }
}

/// The settings that the model does not support.
pub(super) fn unsupported_settings(model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
    let thinking = Family::of(model).thinking;
    let no_budget = matches!(thinking, Thinking::Never | Thinking::Level);
    let effort = wanted.reasoning_effort;
    let asks = effort.is_some_and(|effort| effort != ReasoningEffort::None);
    let fewer_stops = wanted.stop_sequences.len() > MAX_STOPS;
    let one_call = wanted.parallel_tool_calls == Some(false);
    let no_reasoning = asks && thinking == Thinking::Never;
    let table = [
        (Setting::StopSequences, fewer_stops, why::FEWER_STOPS),
        (Setting::ReasoningEffort, no_reasoning, why::NO_REASONING),
        (Setting::ReasoningBudget, no_budget, why::BUDGET),
        (Setting::ParallelToolCalls, one_call, why::ONE_CALL),
    ];
    rejected(wanted, table.into_iter().chain(model.refusals(wanted)))
}

/// The settings that the model does not support together with tools.
pub(super) fn unsupported_settings_with_tools(model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
    let no_json = !Family::of(model).json_with_tools;
    let check = (Setting::ResponseFormat, no_json, why::JSON_WITH_TOOLS);
    rejected(wanted, [check])
}

/// Writes the settings, and the provider options last.
pub(super) fn write(body: &mut Body, prompt: &Prompt, model: &ModelInfo) {
    let generation = &prompt.generation;
    let mut merged = [config(prompt, model), Map::new()];
    if let Some(choice) = generation.tool_choice.as_ref()
        && !prompt.tools.is_empty()
    {
        merged[1].insert("functionCallingConfig".to_owned(), mode(choice));
    }
    let options = generation.provider_options.as_deref();
    let own = options_of(KIND, options);
    body.merge(KIND, options, RESERVED_FIELDS);
    for (name, mut fields) in MERGED.into_iter().zip(merged) {
        let given = own.get(name).and_then(|raw| serde_json::from_str::<Map<String, Value>>(raw.get()).ok());
        for (key, value) in given.into_iter().flatten() {
            extend(&mut fields, key, value);
        }
        if !fields.is_empty() {
            body.set(name, fields);
        }
    }
}

/// Sets a field. If both values are objects, merges them.
fn extend(fields: &mut Map<String, Value>, key: String, value: Value) {
    match (fields.get_mut(&key), value) {
        (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
        (_, value) => {
            fields.insert(key, value);
        }
    }
}

/// The `generationConfig` field of a request.
fn config(prompt: &Prompt, model: &ModelInfo) -> Map<String, Value> {
    let generation = &prompt.generation;
    let effort = generation.reasoning_effort;
    let budget = generation.reasoning_budget_tokens;
    let family = Family::of(model);
    let thinking = thinking(family.thinking, effort, budget);
    let format = generation.response_format.as_ref();
    let media_type = format.map(|_| "application/json");
    let fields = [
        ("maxOutputTokens", json!(prompt.max_output_tokens)),
        ("thinkingConfig", json!(thinking)),
        ("responseMimeType", json!(media_type)),
        ("responseJsonSchema", json!(format.and_then(schema))),
    ];
    let names = ["temperature", "topP", "topK", "seed", "stopSequences"];
    let plain = plain_settings(generation, names);
    let given = fields.into_iter().filter(|(_, value)| !value.is_null());
    let all = plain.chain(given);
    all.map(|(key, value)| (key.to_owned(), value)).collect()
}

fn schema(format: &ResponseFormat) -> Option<Value> {
    serde_json::from_str(format.schema.as_deref()?).ok()
}

/// The `thinkingConfig` field of a request. Returns `None` to leave it to the model.
pub(super) fn thinking(kind: Thinking, effort: Option<ReasoningEffort>, budget: Option<u32>) -> Option<Value> {
    match kind {
        Thinking::Never => None,
        Thinking::Level => {
            let level = level(effort?)?;
            Some(json!({"thinkingLevel": level, "includeThoughts": true}))
        }
        Thinking::Budget { min: least, max: most, off } => {
            let wanted = budget.or(effort.map(budget_tokens))?;
            let budget = if wanted == 0 && off { 0 } else { wanted.clamp(least, most) };
            Some(json!({"thinkingBudget": budget, "includeThoughts": budget > 0}))
        }
    }
}

/// The service's name for a level. Returns `None` if it has none.
fn level(effort: ReasoningEffort) -> Option<&'static str> {
    match effort {
        ReasoningEffort::None => None,
        ReasoningEffort::Minimal => Some("MINIMAL"),
        ReasoningEffort::Low => Some("LOW"),
        ReasoningEffort::Medium => Some("MEDIUM"),
        ReasoningEffort::High => Some("HIGH"),
        ReasoningEffort::Xhigh | ReasoningEffort::Max => Some("XHIGH"),
    }
}

fn mode(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({"mode": "AUTO"}),
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::Tool(name) => {
            json!({"mode": "ANY", "allowedFunctionNames": [names::escape(name)]})
        }
    }
}
