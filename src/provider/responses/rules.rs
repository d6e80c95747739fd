//! Derives the rules for requests from the dialect and the model settings that the encoder uses.

use super::{
    dialect::{CALL_IDS, Dialect},
    options,
};
use crate::provider::{
    ModelInfo, Rules,
    rules::{self, ReasoningAuthor, ReasoningKept},
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
        reasoning_field: match (reasoning.kept, reasoning.of) {
            (ReasoningKept::Never, _) => "",
            (_, ReasoningAuthor::SameModelSigned) => "encrypted_content",
            (_, ReasoningAuthor::AnyModel | ReasoningAuthor::SameModel) => "reasoning_text",
        },
        call_ids: Some(CALL_IDS),
        max_stop_sequences: Some(options::MAX_STOPS),
        ..Rules::plain(reasoning, efforts)
    }
}
