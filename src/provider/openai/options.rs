//! Encodes the generation settings that the service supports.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    KIND,
    dialect::{Dialect, EffortForm},
};
use crate::{
    model::{
        Generation, Prompt,
        generation::{ReasoningEffort, ResponseFormat, Setting, ToolChoice, Unsupported},
    },
    provider::{
        body::Body,
        info::{ModelInfo, rejected_settings},
        rules::ForcedCalls,
    },
};

#[cfg(test)]
mod tests;

/// Fields that provider options cannot override: overriding them would send a conversation that
/// differs from the stored one.
const RESERVED_FIELDS: &[&str] = &[
    "model",
    "messages",
    "tools",
    "stream",
    "stream_options",
    "n",
];

/// The levels of effort of OpenAI models whose levels are unknown: those that every reasoning model
/// supports. A level that a model does not support fails the call.
pub(in crate::provider) const OPENAI_EFFORTS: [ReasoningEffort; 3] = [
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
];

/// The levels of effort of other models whose levels are unknown, if a level is sent.
pub(in crate::provider) const COMMON_EFFORTS: [ReasoningEffort; 4] = [
    ReasoningEffort::None,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
];

/// The settings with the effort replaced by the model's nearest level. A service that can disable
/// reasoning can do so for every model.
pub(super) fn nearest_supported(
    dialect: &Dialect,
    model: &ModelInfo,
    wanted: &Generation,
) -> Generation {
    let nearest = |effort: ReasoningEffort, levels: &[ReasoningEffort]| Generation {
        reasoning_effort: effort.nearest_of(levels),
        ..wanted.clone()
    };
    let switched = matches!(dialect.effort, EffortForm::Switch | EffortForm::Thinking);
    match (wanted.reasoning_effort, &model.reasoning_efforts) {
        (Some(ReasoningEffort::None), _) if switched => wanted.clone(),
        (Some(effort), None) if dialect.effort == EffortForm::Coarse => {
            nearest(effort, &COMMON_EFFORTS)
        }
        (Some(effort), None) if dialect.effort == EffortForm::Fine => {
            nearest(effort, &OPENAI_EFFORTS)
        }
        (Some(_) | None, _) => model.nearest_supported(wanted),
    }
}

/// The settings that the model does not support.
pub(super) fn unsupported_settings(
    dialect: &Dialect,
    info: &ModelInfo,
    wanted: &Generation,
) -> Vec<Unsupported> {
    let no_effort = has_no_effort(dialect, info);
    let model = info.name.as_str();
    let thinks = dialect.effort == EffortForm::Fine && is_openai_reasoning_model(model);
    let effort = wanted.reasoning_effort;
    let forced = wanted
        .tool_choice
        .as_ref()
        .is_some_and(ToolChoice::is_forced);
    let stops = wanted.stop_sequences.len();
    let no_schema = !dialect.json_schema
        && wanted
            .response_format
            .as_ref()
            .is_some_and(|it| it.schema.is_some());
    let no_budget = dialect.budget.is_none() && dialect.effort != EffortForm::Object;
    let always = is_one_of(dialect.always_thinking, model);
    let reasons = effort != Some(ReasoningEffort::None) || always;
    let own_sampling = is_one_of(dialect.reasoning_models, model);
    let not_forced = reasons && forced_calls(dialect, model).drops_force();
    let max_stops = max_stops(dialect, model);
    let table = [
        (
            Setting::Temperature,
            wanted.temperature.is_some() && (thinks || own_sampling),
            "Reasoning models do not accept a temperature.",
        ),
        (
            Setting::TopP,
            wanted.top_p.is_some() && (thinks || own_sampling),
            "Reasoning models do not accept top_p.",
        ),
        (
            Setting::TopK,
            wanted.top_k.is_some() && !dialect.top_k,
            "The service does not support top_k.",
        ),
        (
            Setting::StopSequences,
            stops > 0 && max_stops == Some(0),
            "The model does not accept stop sequences.",
        ),
        (
            Setting::StopSequences,
            max_stops.is_some_and(|most| stops > most),
            "The service accepts fewer stop sequences.",
        ),
        (
            Setting::ReasoningEffort,
            effort.is_some() && no_effort,
            "The model does not support a reasoning effort.",
        ),
        (
            Setting::ReasoningEffort,
            effort == Some(ReasoningEffort::None) && always,
            "The model does not support disabling reasoning.",
        ),
        (
            Setting::ReasoningBudget,
            wanted.reasoning_budget_tokens.is_some() && no_budget,
            "The service does not accept a reasoning budget.",
        ),
        (
            Setting::ToolChoice,
            forced && not_forced,
            "A tool call cannot be required with reasoning enabled.",
        ),
        (
            Setting::ParallelToolCalls,
            wanted.parallel_tool_calls.is_some() && thinks && model.starts_with('o'),
            "The model does not support parallel tool calls.",
        ),
        (
            Setting::ResponseFormat,
            no_schema,
            "The service does not support a response schema.",
        ),
    ];
    rejected_settings(table.into_iter().chain(info.refusals(wanted)))
}

/// The settings that the model does not support together with tools.
pub(super) fn unsupported_settings_with_tools(
    dialect: &Dialect,
    model: &ModelInfo,
    wanted: &Generation,
) -> Vec<Unsupported> {
    let reduced = rejects_reasoning_with_tools(dialect, &model.name)
        && wanted.reasoning_effort != Some(ReasoningEffort::None);
    let why = "Over Chat Completions, the model supports tools only without reasoning: its effort is none. Use a provider of kind \"openai-responses\" for both.";
    rejected_settings([(Setting::ReasoningEffort, reduced, why)])
}

/// Whether a model rejects tools over Chat Completions unless its effort is `none`. This holds for
/// OpenAI models since gpt-5.4, whose default effort is not `none`.
pub(super) fn rejects_reasoning_with_tools(dialect: &Dialect, model: &str) -> bool {
    dialect.effort == EffortForm::Fine
        && is_openai_reasoning_model(model)
        && generation(model) >= Some((5, 4))
}

/// The generation of a GPT model: 5.4 for `gpt-5.4-mini`. Returns `None` for other models.
fn generation(model: &str) -> Option<(u32, u32)> {
    let number = model.strip_prefix("gpt-")?.split('-').next()?;
    let (major, minor) = number.split_once('.').unwrap_or((number, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a model can reason, at a service whose models reason by default.
pub(super) fn may_think(model: &str) -> bool {
    model != "deepseek-chat"
}

/// What is sent if a tool call is forced and the model reasons.
pub(super) fn forced_calls(dialect: &Dialect, model: &str) -> ForcedCalls {
    let thinks = dialect.effort == EffortForm::Thinking && may_think(model);
    if thinks || is_one_of(dialect.reasoning_models, model) {
        ForcedCalls::NotForced
    } else {
        ForcedCalls::Both
    }
}

/// Whether the name of a model has one of these prefixes.
fn is_one_of(starts: &[&str], model: &str) -> bool {
    starts.iter().any(|start| model.starts_with(start))
}

/// Limit on the number of stop sequences. OpenAI's reasoning models accept none. Returns `None` if
/// unknown.
pub(super) fn max_stops(dialect: &Dialect, model: &str) -> Option<usize> {
    let thinks = dialect.effort == EffortForm::Fine && is_openai_reasoning_model(model);
    if thinks || is_one_of(dialect.no_stops, model) {
        Some(0)
    } else {
        dialect.max_stops
    }
}

/// Whether the effort of a model cannot be set.
fn has_no_effort(dialect: &Dialect, model: &ModelInfo) -> bool {
    let has_levels = || {
        let levels = model.reasoning_efforts.as_ref();
        levels.is_some_and(|levels| !levels.is_empty())
    };
    match dialect.effort {
        EffortForm::Unknown => dialect.budget.is_none(),
        EffortForm::Fine => !is_openai_reasoning_model(&model.name) && !has_levels(),
        EffortForm::Listed => !has_levels(),
        EffortForm::Coarse | EffortForm::Object | EffortForm::Thinking | EffortForm::Switch => {
            false
        }
    }
}

/// Writes the settings, and the provider options last.
pub(super) fn write(body: &mut Body, prompt: &Prompt, dialect: &Dialect) {
    let Generation {
        temperature,
        top_p,
        top_k,
        stop_sequences,
        seed,
        reasoning_effort,
        reasoning_budget_tokens,
        tool_choice,
        parallel_tool_calls,
        response_format,
        provider_options,
    } = &prompt.generation;
    body.set_some("temperature", temperature.map(|number| number.get()));
    body.set_some("top_p", top_p.map(|number| number.get()));
    body.set_some("top_k", *top_k);
    body.set_some(
        "stop",
        Some(stop_sequences).filter(|words| !words.is_empty()),
    );
    body.set_some(dialect.seed, *seed);
    think(body, dialect, *reasoning_effort, *reasoning_budget_tokens);
    if !prompt.tools.is_empty() {
        if rejects_reasoning_with_tools(dialect, &prompt.model) {
            body.set("reasoning_effort", effort_name(ReasoningEffort::None));
        }
        body.set_some("tool_choice", tool_choice.as_ref().map(choice));
        body.set_some("parallel_tool_calls", *parallel_tool_calls);
    }
    body.set_some(
        "response_format",
        response_format
            .as_ref()
            .map(|format| response_format_json(format, dialect)),
    );
    body.merge(KIND, provider_options.as_deref(), RESERVED_FIELDS);
}

/// Writes the reasoning settings. A budget takes precedence if the service supports one.
pub(super) fn think(
    body: &mut Body,
    dialect: &Dialect,
    effort: Option<ReasoningEffort>,
    budget: Option<u32>,
) {
    if let (Some(field), Some(budget)) = (dialect.budget, budget) {
        body.set(field, budget);
        return;
    }
    let switch = |effort| json!({"type": if effort == ReasoningEffort::None { "disabled" } else { "enabled" }});
    match (dialect.effort, effort) {
        (EffortForm::Object, _) if budget.is_some() => {
            body.set("reasoning", json!({"max_tokens": budget}))
        }
        (EffortForm::Object, Some(effort)) => {
            body.set("reasoning", json!({"effort": effort_name(effort)}))
        }
        (EffortForm::Fine | EffortForm::Coarse | EffortForm::Listed, Some(effort)) => {
            body.set("reasoning_effort", effort_name(effort))
        }
        (EffortForm::Switch, Some(effort)) => body.set("thinking", switch(effort)),
        (EffortForm::Thinking, Some(effort)) => {
            body.set("thinking", switch(effort));
            body.set_some("reasoning_effort", high_or_max(effort));
        }
        (EffortForm::Unknown, Some(effort)) => {
            if let Some(field) = dialect.budget {
                body.set(field, tokens(effort));
            }
        }
        (_, None) => {}
    }
}

fn effort_name(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::None => "none",
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Xhigh => "xhigh",
        ReasoningEffort::Max => "max",
    }
}

/// The budget for a level of effort, for a service that supports only budgets. The values are
/// Google's where it documents them.
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

fn high_or_max(effort: ReasoningEffort) -> Option<&'static str> {
    match effort {
        ReasoningEffort::None => None,
        ReasoningEffort::Minimal
        | ReasoningEffort::Low
        | ReasoningEffort::Medium
        | ReasoningEffort::High => Some("high"),
        ReasoningEffort::Xhigh | ReasoningEffort::Max => Some("max"),
    }
}

fn choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

fn response_format_json(format: &ResponseFormat, dialect: &Dialect) -> Value {
    let ResponseFormat {
        schema,
        name,
        strict,
    } = format;
    let Some(schema) = schema
        .as_deref()
        .and_then(|schema| serde_json::from_str::<Value>(schema).ok())
    else {
        return json!({"type": "json_object"});
    };
    let can = dialect.effort == EffortForm::Fine && can_be_strict(&schema);
    let mut form = json!({"name": name, "schema": schema});
    if let Some(strict) = strict.or(can.then_some(true)) {
        form["strict"] = json!(strict);
    }
    json!({"type": "json_schema", "json_schema": form})
}

/// Whether OpenAI's strict mode supports the schema: every object lists all of its properties as
/// required and allows no others.
pub(in crate::provider) fn can_be_strict(schema: &Value) -> bool {
    match schema {
        Value::Array(list) => list.iter().all(can_be_strict),
        Value::Object(map) => {
            let closed = || {
                let required = map.get("required").and_then(Value::as_array);
                let required: BTreeSet<&str> = required
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                let mut names = map
                    .get("properties")
                    .and_then(Value::as_object)
                    .into_iter()
                    .flat_map(serde_json::Map::keys);
                map.get("additionalProperties") == Some(&Value::Bool(false))
                    && names.all(|name| required.contains(name.as_str()))
            };
            let object =
                map.contains_key("properties") || map.get("type") == Some(&json!("object"));
            (!object || closed()) && map.values().all(can_be_strict)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Whether an OpenAI model is a reasoning model: `o1`, `o3-mini` and `gpt-5.1` are, `gpt-5-chat` is
/// not.
pub(in crate::provider) fn is_openai_reasoning_model(model: &str) -> bool {
    let generation = |family: &str| {
        let digits: String = model
            .strip_prefix(family)?
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse::<u32>().ok()
    };
    let chats = model.contains("-chat");
    !chats && (generation("o").is_some() || generation("gpt-").is_some_and(|number| number >= 5))
}
