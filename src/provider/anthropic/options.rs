//! Encodes the generation settings that Anthropic Messages supports.

use serde_json::{Value, json};

use super::{
    KIND,
    family::{Family, Thinking},
};
use crate::{
    model::{
        Generation, Prompt,
        generation::{ReasoningEffort, ResponseFormat, Setting, ToolChoice, Unsupported, UpTo},
    },
    provider::{
        ModelInfo,
        body::Body,
        refusals::{self as why, rejected},
        rules::COMMON_LEVELS,
    },
};

/// Fields that provider options cannot override: overriding them would send a conversation that
/// differs from the stored one.
const RESERVED_FIELDS: &[&str] = &["model", "messages", "system", "tools", "stream", "betas"];

/// The service's minimum reasoning budget, in tokens.
const MIN_BUDGET: u32 = 1_024;

/// The settings with the effort replaced by the model's nearest level. `None` is kept unless
/// thinking cannot be disabled.
pub(super) fn nearest_supported(model: &ModelInfo, wanted: &Generation) -> Generation {
    let family = Family::of(model);
    let nearest = |effort: ReasoningEffort| match family.thinking {
        Thinking::Never | Thinking::Budget => Some(effort),
        Thinking::Always | Thinking::Adaptive | Thinking::AdaptiveOrBudget => {
            if effort == ReasoningEffort::None && family.thinking != Thinking::Always {
                return Some(effort);
            }
            let levels = model.effort_levels().unwrap_or(&COMMON_LEVELS);
            let levels = levels.iter().copied();
            let levels = levels.filter(|level| *level != ReasoningEffort::None);
            effort.nearest_of(&levels.collect::<Vec<_>>())
        }
    };
    Generation { reasoning_effort: wanted.reasoning_effort.and_then(nearest), ..wanted.clone() }
}

/// The settings that the model does not support.
pub(super) fn unsupported_settings(model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
    let family = Family::of(model);
    let forced = wanted.forces_call();
    let is_on = is_on(wanted.reasoning_effort);
    let has_budget = wanted.reasoning_budget_tokens.is_some();
    let no_effort = family.thinking == Thinking::Never;
    let not_both = forced && is_on && family.forced_with_effort().drops_reasoning();
    let not_forced = !family.forced_calls
        || is_on && family.forced_with_effort().drops_force()
        || has_budget && family.forced_with_budget().drops_force();
    let no_budget = !family.takes_budget();
    let any_json = !wanted.has_schema();
    let no_schema = !family.schemas && model.supports_json_schema != Some(true);
    let fixed = !family.sampling || model.supports_temperature == Some(false) || is_thinking_requested(family, wanted);
    let both = wanted.temperature.is_some() && !family.temperature_with_top_p;
    let table = [
        (Setting::Temperature, fixed, why::TEMPERATURE_HERE),
        (Setting::TopP, fixed || both, why::TOP_P_HERE),
        (Setting::TopK, fixed, why::TOP_K_HERE),
        (Setting::Seed, true, why::SEED),
        (Setting::ReasoningEffort, no_effort, why::NO_REASONING),
        (Setting::ReasoningEffort, not_both, why::EFFORT_IF_FORCED),
        (Setting::ReasoningBudget, no_budget, why::BUDGET),
        (Setting::ToolChoice, forced && not_forced, why::FORCED),
        (Setting::ResponseFormat, any_json, why::SCHEMA_ONLY),
        (Setting::ResponseFormat, no_schema, why::SCHEMA),
    ];
    rejected(wanted, table.into_iter().chain(model.refusals(wanted)))
}

/// Whether thinking is requested from a model that thinks only on request. The service rejects sampling settings in
/// such a request. Other models either never accept sampling settings or never think.
fn is_thinking_requested(family: Family, wanted: &Generation) -> bool {
    let is_requested = wanted.reasoning_budget_tokens.is_some() || is_on(wanted.reasoning_effort);
    family.takes_budget() && is_requested
}

fn is_on(effort: Option<ReasoningEffort>) -> bool {
    effort.is_some_and(|effort| effort != ReasoningEffort::None)
}

/// Writes the settings, and the provider options last. `may_think` is false if the conversation has a tool call without
/// thinking, which the service rejects for models that must start each response with thinking. `max_tokens` limits the
/// response, including its thinking.
pub(super) fn write(body: &mut Body, prompt: &Prompt, family: Family, max_tokens: u32, may_think: bool) {
    let generation = &prompt.generation;
    // The service accepts at most 1.
    let temperature = generation.temperature.map(|number| number.get().min(1.0));
    body.set_some("temperature", temperature);
    body.set_some("top_p", generation.top_p.map(UpTo::get));
    body.set_some("top_k", generation.top_k);
    let stops = generation.stop_sequences.iter();
    let stops = stops.filter(|stop| !stop.trim().is_empty());
    body.set_list("stop_sequences", stops.collect());
    let effort = generation.reasoning_effort;
    let budget = generation.reasoning_budget_tokens;
    let thinking = thinking(family.thinking, effort, budget, max_tokens);
    let thinking = thinking.filter(|thinking| may_think || thinking["type"] != "enabled");
    body.set_some("thinking", thinking);
    let output = output(family.thinking, effort, &generation.response_format);
    body.set_some("output_config", output);
    if !prompt.tools.is_empty() || !prompt.provider_tools.is_empty() {
        let parallel = generation.parallel_tool_calls;
        let choice = choice(generation.tool_choice.as_ref(), parallel);
        body.set_some("tool_choice", choice);
    }
    let options = generation.provider_options.as_deref();
    body.merge(KIND, options, RESERVED_FIELDS);
}

/// The `thinking` field of a request. Returns `None` if the model's default applies.
pub(super) fn thinking(
    kind: Thinking,
    effort: Option<ReasoningEffort>,
    budget: Option<u32>,
    max_tokens: u32,
) -> Option<Value> {
    let enabled = |budget: u32| {
        // The budget must leave room for the response.
        let budget = budget.max(MIN_BUDGET).min(max_tokens.saturating_sub(1));
        (budget >= MIN_BUDGET).then(|| json!({"type": "enabled", "budget_tokens": budget}))
    };
    match (kind, effort, budget) {
        (Thinking::Never, _, _) => None,
        (Thinking::Budget | Thinking::AdaptiveOrBudget, _, Some(budget)) => enabled(budget),
        (Thinking::Budget, Some(ReasoningEffort::None) | None, None) => None,
        (Thinking::Budget, Some(effort), None) => enabled(tokens(effort)),
        (Thinking::AdaptiveOrBudget | Thinking::Adaptive, Some(ReasoningEffort::None), _) => {
            Some(json!({"type": "disabled"}))
        }
        (Thinking::AdaptiveOrBudget | Thinking::Adaptive | Thinking::Always, Some(_), _) => {
            Some(json!({"type": "adaptive", "display": "summarized"}))
        }
        (Thinking::AdaptiveOrBudget | Thinking::Adaptive | Thinking::Always, None, _) => None,
    }
}

/// The budget for a level of effort, for a model that supports only budgets.
fn tokens(effort: ReasoningEffort) -> u32 {
    match effort {
        ReasoningEffort::None | ReasoningEffort::Minimal => MIN_BUDGET,
        ReasoningEffort::Low => 2_048,
        ReasoningEffort::Medium => 8_192,
        ReasoningEffort::High => 16_384,
        ReasoningEffort::Xhigh | ReasoningEffort::Max => 32_768,
    }
}

/// The `output_config` field of a request: the effort and the response format.
pub(super) fn output(
    thinking: Thinking,
    effort: Option<ReasoningEffort>,
    format: &Option<ResponseFormat>,
) -> Option<Value> {
    let mut output = json!({});
    let levels = match thinking {
        Thinking::Never | Thinking::Budget => None,
        Thinking::AdaptiveOrBudget | Thinking::Adaptive | Thinking::Always => effort,
    };
    if let Some(level) = levels.and_then(level) {
        output["effort"] = json!(level);
    }
    let schema = format.as_ref().and_then(|format| format.schema.as_deref());
    if let Some(schema) = schema.and_then(|json| serde_json::from_str::<Value>(json).ok()) {
        output["format"] = json!({"type": "json_schema", "schema": schema});
    }
    (output != json!({})).then_some(output)
}

/// The service's name for a level of effort. Returns `None` if the service has no such level.
fn level(effort: ReasoningEffort) -> Option<&'static str> {
    match effort {
        ReasoningEffort::None => None,
        ReasoningEffort::Minimal | ReasoningEffort::Low => Some("low"),
        ReasoningEffort::Medium => Some("medium"),
        ReasoningEffort::High => Some("high"),
        ReasoningEffort::Xhigh => Some("xhigh"),
        ReasoningEffort::Max => Some("max"),
    }
}

fn choice(choice: Option<&ToolChoice>, parallel: Option<bool>) -> Option<Value> {
    let one_at_a_time = parallel == Some(false);
    let mut written = match choice {
        Some(ToolChoice::None) => return Some(json!({"type": "none"})),
        Some(ToolChoice::Auto) => json!({"type": "auto"}),
        Some(ToolChoice::Required) => json!({"type": "any"}),
        Some(ToolChoice::Tool(name)) => json!({"type": "tool", "name": name}),
        None if one_at_a_time => json!({"type": "auto"}),
        None => return None,
    };
    if one_at_a_time {
        written["disable_parallel_tool_use"] = json!(true);
    }
    Some(written)
}
