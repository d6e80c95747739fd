//! Deltas: pieces of a message that is still being written. Never stored one by one.

use super::{CallId, MessageId, Seq, TurnId, event::StepPosition};

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

/// A stretch of an open message: what was added to its parts since the stretch before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The durable event that the message follows.
    pub after: Seq,
    /// The turn.
    pub turn: TurnId,
    /// Where in the turn.
    pub at: StepPosition,
    /// What was added; never empty, and all of one message.
    pub deltas: Vec<Delta>,
}

impl Stretch {
    /// The message that is written.
    pub fn message(&self) -> Option<&MessageId> {
        self.deltas.first().map(|delta| &delta.message)
    }
}
