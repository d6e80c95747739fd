//! Chunks of a streamed model response.

use super::GeneratedImage;
use crate::model::{Citation, FinishReason, ProviderItem, Usage};

/// A chunk of a model response. Parts follow one another: a change of kind starts a new part, and
/// so does [`Chunk::PartEnded`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    Text(String),
    Reasoning(String),
    /// Refusal text.
    Refusal(String),
    /// A tool call starts. Its arguments follow under the same index.
    ToolCall {
        /// Index of the call in this response, from 0.
        index: u32,
        /// The provider's id. Empty if it gave none.
        id: String,
        name: String,
    },
    /// More of the arguments of a call.
    ToolInput {
        /// Index of the call in this response.
        index: u32,
        /// A fragment of JSON, which may be split anywhere.
        json: String,
    },
    /// The part that was written last is complete: more text of the same kind starts a new part.
    PartEnded,
    /// Metadata that the provider attached to the part that was written last: a JSON object keyed
    /// by kind of provider. After empty text or empty reasoning it belongs to a part without text.
    PartMetadata(String),
    /// Metadata that the provider attached to a call of this response. It may arrive at any
    /// position.
    CallMetadata {
        /// Index of the call in this response.
        index: u32,
        /// A JSON object keyed by kind of provider.
        json: String,
    },
    /// A citation for the text that was written last.
    Citation(Citation),
    /// A complete part that only the provider can read. The provider's client fills in the provider
    /// name.
    Item(ProviderItem),
    /// A complete part with an image that the model generated.
    Image(GeneratedImage),
    /// The part that was written last contained characters that cannot be stored. They were
    /// replaced with U+FFFD.
    Sanitized,
    /// The response is complete.
    Finished(Finish),
}

/// The kind of text that a model writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextKind {
    #[default]
    Text,
    Reasoning,
    Refusal,
}

impl TextKind {
    /// The chunk with this text.
    pub fn chunk(self, text: String) -> Chunk {
        match self {
            Self::Text => Chunk::Text(text),
            Self::Reasoning => Chunk::Reasoning(text),
            Self::Refusal => Chunk::Refusal(text),
        }
    }
}

/// How a response ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    pub reason: FinishReason,
    /// The finish reason as the provider reported it.
    pub provider_reason: String,
    /// Usage as the provider reported it. `None` if it reported none.
    pub usage: Option<Usage>,
    /// Usage of the prompt that the next prompt extends. `usage` may be a sum over rounds in which
    /// provider-executed tools ran; this is the usage of the last round alone, or without what the
    /// tools read. `None` if the provider does not report it separately.
    pub prompt_usage: Option<Usage>,
    /// The model that responded, as the provider reported it. Empty if it reported none.
    pub provider_model: String,
    /// The provider's id of the response. Empty if it gave none.
    pub response_id: String,
    /// Metadata that the provider attached to the whole response: a JSON object keyed by kind of
    /// provider.
    pub metadata: Option<String>,
    /// Hash of the prompt that this response follows, if its reasoning is bound to that prompt.
    pub prompt_fingerprint: Option<String>,
}

impl Finish {
    /// The usage report from which the size of the prompt can be derived. Returns `None` if there
    /// is none, or only a sum over rounds in which provider-executed tools ran.
    pub fn size_report(&self) -> Option<&Usage> {
        let whole = || self.usage.as_ref().filter(|_| !self.ran_provider_tools());
        self.prompt_usage.as_ref().or_else(whole)
    }

    /// Whether provider-executed tools ran. If so, the last prompt that the model read holds more
    /// than was sent.
    pub fn ran_provider_tools(&self) -> bool {
        self.usage.as_ref().is_some_and(|usage| usage.provider_tool_calls > 0)
    }
}
