//! Derives the rules for requests from the model family that the encoder uses.

use super::{encode::CALL_IDS, family::Family, options};
use crate::provider::{
    ModelInfo, Rules,
    body::Body,
    rules::{self, MissingReasoning, ReasoningKept},
};

/// The rules for requests to a model of this family.
pub(super) fn of(family: Family, model: &ModelInfo) -> Rules {
    let efforts = rules::levels(
        |wanted| options::nearest_supported(model, wanted),
        |wanted| options::unsupported_settings(model, wanted),
        |effort| {
            let mut body = Body::default();
            // Without a limit on the response, so that the budgets of all levels differ.
            let thinking = options::thinking(family.thinking, Some(effort), None, u32::MAX);
            body.set_some("thinking", thinking);
            let output = options::output(family.thinking, Some(effort), &None);
            body.set_some("output_config", output);
            (!body.is_empty()).then(|| body.bytes())
        },
    );
    let reasoning = family.reasoning();
    Rules {
        reasoning_field: match reasoning.kept {
            ReasoningKept::Never => "",
            ReasoningKept::InLoop | ReasoningKept::WhileCalls | ReasoningKept::Always => "thinking",
        },
        reasoning_bound_to_prefix: family.binds_prefix,
        missing_reasoning: if family.takes_budget() { MissingReasoning::NoBudget } else { MissingReasoning::Nothing },
        call_ids: Some(CALL_IDS),
        forced_with_effort: family.forced_with_effort(),
        forced_with_budget: family.forced_with_budget(),
        ..Rules::plain(reasoning, efforts)
    }
}
