//! The prompt: everything a model is given for one call, in neutral form.

use super::{Closed, Contents, Generation, TokenCount, Tool};

/// What a model is given for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The model's name within its provider.
    pub model: String,
    /// System prompt with the pinned blocks; empty: none.
    pub system: String,
    /// The conversation. Every call in it has its result.
    pub transcript: Closed,
    /// The content of its media.
    pub contents: Contents,
    /// Tools the model may call; empty for a model without tool support.
    pub tools: Vec<Tool>,
    /// Tokens of the answer; none: the model's limit.
    pub max_output_tokens: Option<u32>,
    /// How the model is to answer.
    pub generation: Generation,
    /// Its predicted size.
    pub size: TokenCount,
}
