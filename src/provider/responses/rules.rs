//! Derives the rules for requests from the dialect and the model settings that the encoder uses.

use super::{
    dialect::{CALL_IDS, Dialect},
    options,
};
use crate::provider::{
    ModelInfo, Rules,
    rules::{self, ForcedCalls, MissingReasoning, ReasoningAuthor, ReasoningKept},
};

/// The rules for requests to a model.
pub(super) fn of(dialect: &Dialect, model: &ModelInfo) -> Rules {
    let efforts = rules::levels(
        |wanted| options::nearest_supported(dialect, model, wanted),
        |wanted| options::unsupported_settings(dialect, model, wanted),
        |effort| serde_json::to_vec(&effort).ok(),
    );
    let reasoning = dialect.reasoning();
    Rules {
        dialect: Some(dialect.name),
        reasoning,
        reasoning_field: match (reasoning.kept, reasoning.of) {
            (ReasoningKept::Never, _) => "",
            (_, ReasoningAuthor::SameModelSigned) => "encrypted_content",
            (_, ReasoningAuthor::AnyModel | ReasoningAuthor::SameModel) => "reasoning_text",
        },
        reasoning_bound_to_prefix: false,
        missing_reasoning: MissingReasoning::Nothing,
        call_ids: Some(CALL_IDS),
        keeps_own_call_ids: false,
        forced_with_effort: ForcedCalls::Both,
        forced_with_budget: ForcedCalls::Both,
        efforts_with_tools: efforts.clone(),
        efforts,
        kind_for_reasoning_with_tools: None,
        max_stop_sequences: Some(options::MAX_STOPS),
    }
}
