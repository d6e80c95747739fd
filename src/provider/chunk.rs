//! The pieces of a model's answer.

use super::Made;
use crate::model::{Citation, FinishReason, ProviderItem, Usage};

/// A piece of a model's answer. Parts come one after the other; a change of kind begins a new part,
/// and so does [`Chunk::PartEnded`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// More words of refusal.
    Refusal(String),
    /// A call begins. Its arguments follow under the same index.
    ToolCall {
        /// Which call of this answer, from 0.
        index: u32,
        /// The provider's id; empty when it gave none.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments.
    ToolInput {
        /// Which call of this answer.
        index: u32,
        /// A piece of JSON, cut anywhere.
        json: String,
    },
    /// The part that was written last is complete: more of the same kind begins a part of its own.
    PartEnded,
    /// What the provider attached to the part that was written last: a JSON object keyed by kind of
    /// provider. After an empty text or empty reasoning it is that of a part without words.
    PartMetadata(String),
    /// What the provider attached to a call of this answer, wherever it stands.
    CallMetadata {
        /// Which call of this answer.
        index: u32,
        /// A JSON object keyed by kind of provider.
        json: String,
    },
    /// A source of the text that was written last.
    Citation(Citation),
    /// A whole part that only the provider can read. Its client fills in the provider's name.
    Item(ProviderItem),
    /// A whole picture that the model made: a part.
    Made(Made),
    /// Characters of the part that was written last cannot be stored, and are U+FFFD in it.
    Sanitized,
    /// The answer is complete.
    Finished(Finish),
}

/// The end of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// Why the model stopped.
    pub reason: FinishReason,
    /// The provider's own word for it.
    pub provider_reason: String,
    /// What the provider reported. `None` if it reported nothing.
    pub usage: Option<Usage>,
    /// What the provider reports of the prompt that the next one continues, where `usage` may be a sum over
    /// rounds in which its own tools ran: of the last round alone, or without what the tools read. `None` if it
    /// does not report that apart.
    pub prompt_usage: Option<Usage>,
    /// The model that the provider says answered; empty when it did not say.
    pub provider_model: String,
    /// The provider's id of the response; empty when it gave none.
    pub response_id: String,
    /// What the provider attached to the whole answer, a JSON object keyed by kind of provider.
    pub metadata: Option<String>,
    /// A hash of the prompt that the answer continues, where its reasoning is bound to that.
    pub prompt_fingerprint: Option<String>,
}

impl Finish {
    /// The report that tells the size of the prompt. `None` if there is none, or only a sum over rounds in
    /// which the provider's own tools ran.
    pub fn size_report(&self) -> Option<&Usage> {
        let whole = || self.usage.as_ref().filter(|_| !self.ran_in_rounds());
        self.prompt_usage.as_ref().or_else(whole)
    }

    /// Whether the provider's own tools ran, so that the last prompt of the model holds more than what was
    /// sent.
    pub fn ran_in_rounds(&self) -> bool {
        self.usage
            .as_ref()
            .is_some_and(|usage| usage.provider_tool_calls > 0)
    }
}
