//! Deltas: increments of a message that is still being generated. Not stored individually.

use super::{CallId, MessageId, Seq, TurnId, event::StepPosition};

/// One increment of an open message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The open message.
    pub message: MessageId,
    /// Index of the part.
    pub part: u32,
    /// Byte offset in the part's text.
    pub offset: u32,
    /// The text to append.
    pub text: String,
    pub kind: DeltaKind,
}

/// The kind of part that a delta adds to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeltaKind {
    /// Text, or the text of a refusal.
    Text,
    Reasoning,
    /// The arguments of a tool call.
    ToolInput {
        call: CallId,
        /// Name of the tool.
        name: String,
    },
}

/// The increments of an open message since the previous batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaBatch {
    /// The seq of the last durable event before the message.
    pub after: Seq,
    pub turn: TurnId,
    pub at: StepPosition,
    /// At least one delta. All belong to the same message.
    pub deltas: Vec<Delta>,
}

impl DeltaBatch {
    /// The message that is being generated.
    pub fn message(&self) -> Option<&MessageId> {
        self.deltas.first().map(|delta| &delta.message)
    }
}
