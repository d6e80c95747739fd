//! Encodes the generation settings that the service supports.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{KIND, dialect::Dialect};
use crate::{
    model::{
        Generation, Prompt,
        generation::{ReasoningEffort, ResponseFormat, Setting, Unsupported},
        service_rules::EffortForm,
    },
    provider::{
        ModelInfo,
        body::{Body, tool_choice},
        refusals::{self as why, rejected},
        rules::{COMMON_LEVELS, COMMON_LEVELS_AND_NONE, ForcedCalls, budget_tokens},
    },
};

#[cfg(test)]
mod tests;

/// Fields that provider options cannot override: overriding them would send a conversation that
/// differs from the stored one.
const RESERVED_FIELDS: &[&str] = &["model", "messages", "tools", "stream", "stream_options", "n"];

/// The settings with the effort replaced by the model's nearest level. A service that can disable
/// reasoning can do so for every model.
pub(super) fn nearest_supported(dialect: &Dialect, model: &ModelInfo, wanted: &Generation) -> Generation {
    let nearest = |effort: ReasoningEffort, levels: &[ReasoningEffort]| Generation {
        reasoning_effort: effort.nearest_of(levels),
        ..wanted.clone()
    };
    let switched = matches!(dialect.effort, EffortForm::Switch | EffortForm::Thinking);
    match (wanted.reasoning_effort, &model.reasoning_efforts) {
        (Some(ReasoningEffort::None), _) if switched => wanted.clone(),
        (Some(effort), None) if dialect.effort == EffortForm::Levels => nearest(effort, &COMMON_LEVELS_AND_NONE),
        (Some(effort), None) if dialect.effort == EffortForm::Openai => nearest(effort, &COMMON_LEVELS),
        (Some(_) | None, _) => model.nearest_supported(wanted),
    }
}

/// The settings that the model does not support.
pub(super) fn unsupported_settings(dialect: &Dialect, info: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
    let no_effort = has_no_effort(dialect, info);
    let model = info.name.as_str();
    let thinks = dialect.effort == EffortForm::Openai && is_openai_reasoning_model(model);
    let no_sampling = thinks || is_one_of(dialect.reasoning_models, model);
    let one_call = thinks && model.starts_with('o');
    let no_schema = !dialect.json_schema && wanted.has_schema();
    let no_budget = dialect.budget.is_none() && dialect.effort != EffortForm::Object;
    let always = is_one_of(dialect.always_thinking, model);
    let off = wanted.reasoning_effort == Some(ReasoningEffort::None);
    let not_forced = (!off || always) && forced_calls(dialect, model).drops_force();
    let not_forced = wanted.forces_call() && not_forced;
    let max_stops = max_stops(dialect, model);
    let fewer_stops = max_stops.is_some_and(|most| wanted.stop_sequences.len() > most);
    let table = [
        (Setting::Temperature, no_sampling, why::NO_TEMPERATURE),
        (Setting::TopP, no_sampling, why::NO_TOP_P),
        (Setting::TopK, !dialect.top_k, why::SERVICE_TOP_K),
        (Setting::StopSequences, max_stops == Some(0), why::NO_STOPS),
        (Setting::StopSequences, fewer_stops, why::FEWER_STOPS),
        (Setting::ReasoningEffort, no_effort, why::EFFORT),
        (Setting::ReasoningEffort, off && always, why::ALWAYS_REASONS),
        (Setting::ReasoningBudget, no_budget, why::SERVICE_BUDGET),
        (Setting::ToolChoice, not_forced, why::FORCED_REASONING),
        (Setting::ParallelToolCalls, one_call, why::PARALLEL),
        (Setting::ResponseFormat, no_schema, why::SERVICE_SCHEMA),
    ];
    rejected(wanted, table.into_iter().chain(info.refusals(wanted)))
}

/// The settings that the model does not support together with tools.
pub(super) fn unsupported_settings_with_tools(
    dialect: &Dialect,
    model: &ModelInfo,
    wanted: &Generation,
) -> Vec<Unsupported> {
    let reduced =
        rejects_reasoning_with_tools(dialect, &model.name) && wanted.reasoning_effort != Some(ReasoningEffort::None);
    let reason = || Unsupported { setting: Setting::ReasoningEffort, why: why::TOOLS_WITHOUT_REASONING.to_owned() };
    reduced.then(reason).into_iter().collect()
}

/// Whether a model rejects tools over Chat Completions unless its effort is `none`. This holds for
/// OpenAI models since gpt-5.4, whose default effort is not `none`.
pub(super) fn rejects_reasoning_with_tools(dialect: &Dialect, model: &str) -> bool {
    dialect.effort == EffortForm::Openai && is_openai_reasoning_model(model) && generation(model) >= Some((5, 4))
}

/// The generation of a GPT model: 5.4 for `gpt-5.4-mini`. Returns `None` for other models.
fn generation(model: &str) -> Option<(u32, u32)> {
    let number = model.strip_prefix("gpt-")?.split('-').next()?;
    let (major, minor) = number.split_once('.').unwrap_or((number, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a model can reason. Applies to services whose models reason by default.
pub(super) fn may_think(model: &str) -> bool {
    model != "deepseek-chat"
}

/// What is sent if a tool call is forced and the model reasons.
pub(super) fn forced_calls(dialect: &Dialect, model: &str) -> ForcedCalls {
    let thinks = dialect.effort == EffortForm::Thinking && may_think(model);
    if thinks || is_one_of(dialect.reasoning_models, model) { ForcedCalls::NotForced } else { ForcedCalls::Both }
}

/// Whether the name of a model has one of these prefixes.
fn is_one_of(starts: &[&str], model: &str) -> bool {
    starts.iter().any(|start| model.starts_with(start))
}

/// Limit on the number of stop sequences. OpenAI's reasoning models accept none. Returns `None` if
/// unknown.
pub(super) fn max_stops(dialect: &Dialect, model: &str) -> Option<usize> {
    let thinks = dialect.effort == EffortForm::Openai && is_openai_reasoning_model(model);
    if thinks || is_one_of(dialect.no_stops, model) { Some(0) } else { dialect.max_stops }
}

/// Whether the effort of a model cannot be set.
fn has_no_effort(dialect: &Dialect, model: &ModelInfo) -> bool {
    let has_levels = || model.effort_levels().is_some();
    match dialect.effort {
        EffortForm::Never => dialect.budget.is_none(),
        EffortForm::Openai => !is_openai_reasoning_model(&model.name) && !has_levels(),
        EffortForm::Listed => !has_levels(),
        EffortForm::Levels | EffortForm::Object | EffortForm::Thinking | EffortForm::Switch => false,
    }
}

/// Writes the settings, and the provider options last.
pub(super) fn write(body: &mut Body, prompt: &Prompt, dialect: &Dialect) {
    let generation = &prompt.generation;
    let names = ["temperature", "top_p", "top_k", dialect.seed, "stop"];
    body.set_plain(generation, names);
    let budget = generation.reasoning_budget_tokens;
    think(body, dialect, generation.reasoning_effort, budget);
    if !prompt.tools.is_empty() {
        if rejects_reasoning_with_tools(dialect, &prompt.model) {
            body.set("reasoning_effort", ReasoningEffort::None);
        }
        let choice = generation.tool_choice.as_ref();
        body.set_some("tool_choice", choice.map(|it| tool_choice(it, one_tool)));
        body.set_some("parallel_tool_calls", generation.parallel_tool_calls);
    }
    let format = generation.response_format.as_ref();
    let can_be_strict = dialect.effort == EffortForm::Openai;
    let format = format.map(|it| nested(response_format(it, can_be_strict)));
    body.set_some("response_format", format);
    let options = generation.provider_options.as_deref();
    body.merge(KIND, options, RESERVED_FIELDS);
}

fn one_tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name}})
}

/// Writes the reasoning settings. A budget takes precedence if the service supports one.
pub(super) fn think(body: &mut Body, dialect: &Dialect, effort: Option<ReasoningEffort>, budget: Option<u32>) {
    if let (Some(field), Some(budget)) = (dialect.budget, budget) {
        body.set(field, budget);
        return;
    }
    let switch = |effort| json!({"type": if effort == ReasoningEffort::None { "disabled" } else { "enabled" }});
    match (dialect.effort, effort) {
        (EffortForm::Object, _) if budget.is_some() => body.set("reasoning", json!({"max_tokens": budget})),
        (EffortForm::Object, Some(effort)) => body.set("reasoning", json!({"effort": effort})),
        (EffortForm::Openai | EffortForm::Levels | EffortForm::Listed, Some(effort)) => {
            body.set("reasoning_effort", effort)
        }
        (EffortForm::Switch, Some(effort)) => body.set("thinking", switch(effort)),
        (EffortForm::Thinking, Some(effort)) => {
            body.set("thinking", switch(effort));
            body.set_some("reasoning_effort", high_or_max(effort));
        }
        (EffortForm::Never, Some(effort)) => {
            if let Some(field) = dialect.budget {
                body.set(field, budget_tokens(effort));
            }
        }
        (_, None) => {}
    }
}

fn high_or_max(effort: ReasoningEffort) -> Option<&'static str> {
    match effort {
        ReasoningEffort::None => None,
        ReasoningEffort::Minimal | ReasoningEffort::Low | ReasoningEffort::Medium | ReasoningEffort::High => {
            Some("high")
        }
        ReasoningEffort::Xhigh | ReasoningEffort::Max => Some("max"),
    }
}

/// The response format of the Responses API. `has_strict_mode`: the service has OpenAI's strict
/// mode, which is used if it supports the schema.
pub(crate) fn response_format(format: &ResponseFormat, has_strict_mode: bool) -> Value {
    let ResponseFormat { schema, name, strict } = format;
    let schema = schema.as_deref();
    let Some(schema) = schema.and_then(|schema| serde_json::from_str::<Value>(schema).ok()) else {
        return json!({"type": "json_object"});
    };
    let can = has_strict_mode && can_be_strict(&schema);
    let mut form = json!({"type": "json_schema", "name": name, "schema": schema});
    if let Some(strict) = strict.or(can.then_some(true)) {
        form["strict"] = json!(strict);
    }
    form
}

/// Converts a response format to the form of Chat Completions, which nests all fields except
/// `type`.
pub(crate) fn nested(mut format: Value) -> Value {
    let kind = format["type"].take();
    if kind != "json_schema" {
        return json!({"type": kind});
    }
    if let Some(form) = format.as_object_mut() {
        form.remove("type");
    }
    json!({"type": kind, "json_schema": format})
}

/// Whether OpenAI's strict mode supports the schema: every object lists all of its properties as
/// required and allows no others.
fn can_be_strict(schema: &Value) -> bool {
    match schema {
        Value::Array(list) => list.iter().all(can_be_strict),
        Value::Object(map) => {
            let closed = || {
                let required = schema["required"].as_array().into_iter().flatten();
                let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
                let properties = schema["properties"].as_object().into_iter();
                let mut names = properties.flat_map(serde_json::Map::keys);
                map.get("additionalProperties") == Some(&Value::Bool(false))
                    && names.all(|name| required.contains(name.as_str()))
            };
            let object = map.contains_key("properties") || map.get("type") == Some(&json!("object"));
            (!object || closed()) && map.values().all(can_be_strict)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Whether an OpenAI model is a reasoning model: `o1`, `o3-mini` and `gpt-5.1` are, `gpt-5-chat` is
/// not.
pub(crate) fn is_openai_reasoning_model(model: &str) -> bool {
    let generation = |family: &str| {
        let digits = model.strip_prefix(family)?.chars();
        let digits: String = digits.take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    };
    let chats = model.contains("-chat");
    !chats && (generation("o").is_some() || generation("gpt-").is_some_and(|number| number >= 5))
}
