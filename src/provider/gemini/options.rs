//! Encodes the generation settings that generateContent supports.

use serde_json::{Map, Value, json};

use super::{
    KIND,
    family::{Family, LEVELS, Thinking},
    names,
};
use crate::{
    model::{
        Generation, Prompt,
        generation::{ReasoningEffort, ResponseFormat, Setting, ToolChoice, Unsupported},
    },
    provider::{
        ModelInfo,
        body::{Body, options_of},
        info::rejected_settings,
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
        Thinking::Level => {
            let known = model.reasoning_efforts.as_deref();
            let levels = known.filter(|levels| !levels.is_empty());
            effort.nearest_of(levels.unwrap_or(&LEVELS))
        }
        Thinking::Budget { off: false, .. } if effort == ReasoningEffort::None => {
            Some(ReasoningEffort::Minimal)
        }
        Thinking::Budget { .. } | Thinking::Never => Some(effort),
    };
    Generation {
        reasoning_effort: wanted.reasoning_effort.and_then(nearest),
        ..wanted.clone()
    }
}

/// The settings that the model does not support.
pub(super) fn unsupported_settings(model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
    let thinking = Family::of(model).thinking;
    let no_budget = matches!(thinking, Thinking::Never | Thinking::Level);
    let effort = wanted.reasoning_effort;
    let asks = effort.is_some_and(|effort| effort != ReasoningEffort::None);
    let table = [
        (
            Setting::StopSequences,
            wanted.stop_sequences.len() > MAX_STOPS,
            "The service accepts fewer stop sequences.",
        ),
        (
            Setting::ReasoningEffort,
            asks && thinking == Thinking::Never,
            "The model does not support reasoning.",
        ),
        (
            Setting::ReasoningBudget,
            wanted.reasoning_budget_tokens.is_some() && no_budget,
            "The model does not accept a reasoning budget.",
        ),
        (
            Setting::ParallelToolCalls,
            wanted.parallel_tool_calls == Some(false),
            "The service does not support disabling parallel tool calls.",
        ),
    ];
    let unsupported = table.into_iter().filter(|(_, applies, _)| *applies);
    let mut unsupported: Vec<Unsupported> = unsupported
        .map(|(setting, _, why)| Unsupported {
            setting,
            why: why.to_owned(),
        })
        .collect();
    for more in model.unsupported_settings(wanted) {
        let known = |it: &Unsupported| it.setting == more.setting;
        if !unsupported.iter().any(known) {
            unsupported.push(more);
        }
    }
    unsupported
}

/// The settings that the model does not support together with tools.
pub(super) fn unsupported_settings_with_tools(
    model: &ModelInfo,
    wanted: &Generation,
) -> Vec<Unsupported> {
    let no_json = !Family::of(model).json_with_tools && wanted.response_format.is_some();
    let why = "The model does not support JSON output together with tools.";
    rejected_settings([(Setting::ResponseFormat, no_json, why)])
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
        let given = own
            .get(name)
            .and_then(|raw| serde_json::from_str::<Map<String, Value>>(raw.get()).ok());
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
    let Generation {
        temperature,
        top_p,
        top_k,
        stop_sequences,
        seed,
        reasoning_effort,
        reasoning_budget_tokens,
        tool_choice: _,
        parallel_tool_calls: _,
        response_format,
        provider_options: _,
    } = &prompt.generation;
    let thinking = thinking(
        Family::of(model).thinking,
        *reasoning_effort,
        *reasoning_budget_tokens,
    );
    let stops = Some(stop_sequences).filter(|stops| !stops.is_empty());
    let (media_type, schema) = match response_format {
        Some(format) => (Some("application/json"), schema(format)),
        None => (None, None),
    };
    let fields = [
        ("temperature", json!(temperature.map(|number| number.get()))),
        ("topP", json!(top_p.map(|number| number.get()))),
        ("topK", json!(top_k)),
        ("seed", json!(seed)),
        ("stopSequences", json!(stops)),
        ("maxOutputTokens", json!(prompt.max_output_tokens)),
        ("thinkingConfig", json!(thinking)),
        ("responseMimeType", json!(media_type)),
        ("responseJsonSchema", json!(schema)),
    ];
    let given = fields.into_iter().filter(|(_, value)| !value.is_null());
    given.map(|(key, value)| (key.to_owned(), value)).collect()
}

fn schema(format: &ResponseFormat) -> Option<Value> {
    serde_json::from_str(format.schema.as_deref()?).ok()
}

/// The `thinkingConfig` field of a request. Returns `None` to leave it to the model.
pub(super) fn thinking(
    kind: Thinking,
    effort: Option<ReasoningEffort>,
    budget: Option<u32>,
) -> Option<Value> {
    match kind {
        Thinking::Never => None,
        Thinking::Level => {
            let level = level(effort?)?;
            Some(json!({"thinkingLevel": level, "includeThoughts": true}))
        }
        Thinking::Budget {
            min: least,
            max: most,
            off,
        } => {
            let wanted = budget.or(effort.map(tokens))?;
            let budget = if wanted == 0 && off {
                0
            } else {
                wanted.clamp(least, most)
            };
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

/// The budget for a level of effort. The values are Google's where it documents them.
fn tokens(effort: ReasoningEffort) -> u32 {
    match effort {
        ReasoningEffort::None => 0,
        ReasoningEffort::Minimal => 512,
        ReasoningEffort::Low => 1_024,
        ReasoningEffort::Medium => 8_192,
        ReasoningEffort::High => 24_576,
        ReasoningEffort::Xhigh | ReasoningEffort::Max => 32_768,
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
