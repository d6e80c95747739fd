//! Derives the rules for requests from the dialect and the model settings that the encoder uses.

use super::{
    bound,
    dialect::Dialect,
    options::{self, forced_calls, max_stops, rejects_reasoning_with_tools},
};
use crate::{
    model::{
        generation::ReasoningEffort,
        service_rules::{ReasoningBack, ReasoningField},
    },
    provider::{
        ModelInfo, Rules,
        body::Body,
        inserted::NO_REASONING,
        rules::{self, MissingReasoning},
    },
};

/// The kind of provider that calls the same models through an API that supports reasoning with
/// tools.
pub(crate) const KIND_FOR_REASONING_WITH_TOOLS: &str = "openai-responses";

/// The rules for requests to a model.
pub(super) fn of(dialect: &Dialect, model: &ModelInfo) -> Rules {
    let name = model.name.as_str();
    let missing_reasoning = match dialect.placeholder().filter(|_| options::may_think(name)) {
        Some(_) => MissingReasoning::Placeholder(NO_REASONING),
        None => MissingReasoning::Nothing,
    };
    let efforts = rules::levels(
        |wanted| options::nearest_supported(dialect, model, wanted),
        |wanted| options::unsupported_settings(dialect, model, wanted),
        |effort| {
            let mut body = Body::default();
            options::think(&mut body, dialect, Some(effort), None);
            (!body.is_empty()).then(|| body.bytes())
        },
    );
    let reduced = rejects_reasoning_with_tools(dialect, name);
    let forced_calls = forced_calls(dialect, name);
    Rules {
        dialect: Some(dialect.name),
        reasoning: dialect.reasoning(),
        reasoning_field: match (dialect.reasoning_back, dialect.reasoning_field) {
            (ReasoningBack::Never, _) => "",
            (ReasoningBack::Details, _) => "reasoning_details",
            (ReasoningBack::InLoop | ReasoningBack::WhileCalls, ReasoningField::ReasoningContent) => {
                "reasoning_content"
            }
            (ReasoningBack::InLoop | ReasoningBack::WhileCalls, ReasoningField::Reasoning) => "reasoning",
        },
        reasoning_bound_to_prefix: bound::binds(dialect, name),
        missing_reasoning,
        call_ids: Some(dialect.call_ids),
        keeps_own_call_ids: dialect.own_call_ids,
        forced_with_effort: forced_calls,
        forced_with_budget: forced_calls,
        efforts_with_tools: if reduced { vec![ReasoningEffort::None] } else { efforts.clone() },
        efforts,
        kind_for_reasoning_with_tools: reduced.then_some(KIND_FOR_REASONING_WITH_TOOLS),
        max_stop_sequences: max_stops(dialect, name),
    }
}
