//! Derives the rules for requests from the model family that the encoder uses.

use super::{
    contents::{REASONING, UNSIGNED},
    family::Family,
    options,
};
use crate::provider::{
    ModelInfo, Rules,
    rules::{self, MissingReasoning},
};

/// The rules for requests to a model.
pub(super) fn of(model: &ModelInfo) -> Rules {
    let family = Family::of(model);
    let efforts = rules::levels(
        |wanted| options::nearest_supported(model, wanted),
        |wanted| options::unsupported_settings(model, wanted),
        |effort| {
            let thinking = options::thinking(family.thinking, Some(effort), None)?;
            serde_json::to_vec(&thinking).ok()
        },
    );
    Rules {
        reasoning_field: "thoughtSignature",
        missing_reasoning: if family.signs_calls {
            MissingReasoning::Placeholder(UNSIGNED)
        } else {
            MissingReasoning::Nothing
        },
        call_ids: None,
        keeps_own_call_ids: true,
        max_stop_sequences: Some(options::MAX_STOPS),
        ..Rules::plain(REASONING, efforts)
    }
}
