//! Encodes the generation settings that Anthropic Messages supports.

use serde_json::{Value, json};

use super::{
    KIND,
    family::{Family, Thinking},
};
use crate::{
    model::{
        Generation, Prompt,
        generation::{ReasoningEffort, ResponseFormat, Setting, ToolChoice, Unsupported},
    },
    provider::{
        body::Body,
        info::{ModelInfo, SettingCheck, rejected_settings},
    },
};

/// Fields that provider options cannot override: overriding them would send a conversation that
/// differs from the stored one.
const RESERVED_FIELDS: &[&str] = &["model", "messages", "system", "tools", "stream", "betas"];

/// The levels of effort assumed for a model whose levels are unknown.
const EFFORTS: [ReasoningEffort; 4] = [
    ReasoningEffort::None,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
];

/// The service's minimum reasoning budget, in tokens.
const MIN_BUDGET: u32 = 1_024;

/// The settings with the effort replaced by the model's nearest level. `None` is kept unless
/// thinking cannot be disabled.
pub(super) fn nearest_supported(model: &ModelInfo, wanted: &Generation) -> Generation {
    let family = Family::of(model);
    let nearest = |effort: ReasoningEffort| match family.thinking {
        Thinking::Never | Thinking::Budget => Some(effort),
        Thinking::Always | Thinking::Adaptive | Thinking::AdaptiveOrBudget => {
            let known = model.reasoning_efforts.as_deref();
            let levels = known.filter(|levels| !levels.is_empty());
            let off = effort == ReasoningEffort::None && family.thinking != Thinking::Always;
            if off {
                Some(effort)
            } else {
                let levels = levels.unwrap_or(&EFFORTS);
                let levels: Vec<_> = levels
                    .iter()
                    .copied()
                    .filter(|level| *level != ReasoningEffort::None)
                    .collect();
                effort.nearest_of(&levels)
            }
        }
    };
    Generation {
        reasoning_effort: wanted.reasoning_effort.and_then(nearest),
        ..wanted.clone()
    }
}

/// The settings that the model does not support.
pub(super) fn unsupported_settings(model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
    let family = Family::of(model);
    let forced = wanted
        .tool_choice
        .as_ref()
        .is_some_and(ToolChoice::is_forced);
    let is_on = is_on(wanted.reasoning_effort);
    let has_budget = wanted.reasoning_budget_tokens.is_some();
    let not_forced = !family.forced_calls
        || is_on && family.forced_with_effort().drops_force()
        || has_budget && family.forced_with_budget().drops_force();
    let format = wanted.response_format.as_ref();
    let no_schema = !family.schemas && model.supports_json_schema != Some(true);
    let others = [
        (
            Setting::Seed,
            wanted.seed.is_some(),
            "The service does not support a seed.",
        ),
        (
            Setting::ReasoningEffort,
            wanted.reasoning_effort.is_some() && family.thinking == Thinking::Never,
            "The model does not support reasoning.",
        ),
        (
            Setting::ReasoningEffort,
            forced && is_on && family.forced_with_effort().drops_reasoning(),
            "The model does not support reasoning if a tool call is required.",
        ),
        (
            Setting::ReasoningBudget,
            has_budget && !family.takes_budget(),
            "The model does not accept a reasoning budget.",
        ),
        (
            Setting::ToolChoice,
            forced && not_forced,
            "The model cannot be forced to call a tool.",
        ),
        (
            Setting::ResponseFormat,
            format.is_some_and(|format| format.schema.is_none()),
            "The service does not support JSON output without a schema.",
        ),
        (
            Setting::ResponseFormat,
            format.is_some_and(|format| format.schema.is_some()) && no_schema,
            "The model does not support a response schema.",
        ),
    ];
    let own = sampling(model, family, wanted).into_iter().chain(others);
    rejected_settings(own.chain(model.refusals(wanted)))
}

/// The sampling settings, with whether the model rejects them.
fn sampling(model: &ModelInfo, family: Family, wanted: &Generation) -> [SettingCheck; 3] {
    let refused = !family.sampling || model.supports_temperature == Some(false);
    let thinks = is_thinking_requested(family, wanted);
    let both = wanted.temperature.is_some() && !family.temperature_with_top_p;
    [
        (
            Setting::Temperature,
            wanted.temperature.is_some() && (refused || thinks),
            "The model does not accept a temperature, at least not with reasoning enabled.",
        ),
        (
            Setting::TopP,
            wanted.top_p.is_some() && (refused || thinks || both),
            "The model does not accept top_p, at least not together with a temperature or with reasoning enabled.",
        ),
        (
            Setting::TopK,
            wanted.top_k.is_some() && (refused || thinks),
            "The model does not accept top_k, at least not with reasoning enabled.",
        ),
    ]
}

/// Whether thinking is requested from a model that thinks only on request; sampling settings are
/// rejected with it. Other models either never accept sampling settings or never think.
fn is_thinking_requested(family: Family, wanted: &Generation) -> bool {
    match family.thinking {
        Thinking::Budget | Thinking::AdaptiveOrBudget => {
            wanted.reasoning_budget_tokens.is_some() || is_on(wanted.reasoning_effort)
        }
        Thinking::Never | Thinking::Adaptive | Thinking::Always => false,
    }
}

fn is_on(effort: Option<ReasoningEffort>) -> bool {
    effort.is_some_and(|effort| effort != ReasoningEffort::None)
}

/// Writes the settings, and the provider options last. `may_think`: whether the conversation allows
/// thinking for a model that must start each response with it. `max_tokens` limits the response,
/// thinking included.
pub(super) fn write(
    body: &mut Body,
    prompt: &Prompt,
    family: Family,
    max_tokens: u32,
    may_think: bool,
) {
    let Generation {
        temperature,
        top_p,
        top_k,
        stop_sequences,
        seed: _,
        reasoning_effort,
        reasoning_budget_tokens,
        tool_choice,
        parallel_tool_calls,
        response_format,
        provider_options,
    } = &prompt.generation;
    // The service's range ends at 1.
    body.set_some(
        "temperature",
        temperature.map(|number| number.get().min(1.0)),
    );
    body.set_some("top_p", top_p.map(|number| number.get()));
    body.set_some("top_k", *top_k);
    let stops = stop_sequences.iter().filter(|stop| !stop.trim().is_empty());
    let stops: Vec<&String> = stops.collect();
    body.set_some(
        "stop_sequences",
        Some(stops).filter(|stops| !stops.is_empty()),
    );
    let thinking = thinking(
        family.thinking,
        *reasoning_effort,
        *reasoning_budget_tokens,
        max_tokens,
    );
    let thinking = thinking.filter(|thinking| may_think || thinking["type"] != "enabled");
    body.set_some("thinking", thinking);
    body.set_some(
        "output_config",
        output(family.thinking, *reasoning_effort, response_format),
    );
    if !prompt.tools.is_empty() || !prompt.provider_tools.is_empty() {
        body.set_some(
            "tool_choice",
            choice(tool_choice.as_ref(), *parallel_tool_calls),
        );
    }
    body.merge(KIND, provider_options.as_deref(), RESERVED_FIELDS);
}

/// The `thinking` field of a request. Returns `None` to leave it to the model.
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

/// The service's name for a level. Returns `None` if it has none.
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
