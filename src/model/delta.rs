//! Deltas: pieces of a message that is still being written. Never stored one by one.

use super::{CallId, MessageId};

/// One piece of an open message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The open message.
    pub message: MessageId,
    /// Which part of it, from 0.
    pub part: u32,
    /// Where in the part's text it goes, in bytes.
    pub offset: u32,
    /// The text to append.
    pub text: String,
    /// What is being written.
    pub kind: DeltaKind,
}

/// What a delta adds to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeltaKind {
    /// Text, or words of refusal.
    Text,
    /// Reasoning.
    Reasoning,
    /// The arguments of a call.
    ToolInput {
        /// The call.
        call: CallId,
        /// The tool.
        name: String,
    },
}
