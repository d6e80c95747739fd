//! The state of a tool call when it is answered.

use crate::model::TurnId;

/// A stored tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCall {
    /// The turn that made it.
    pub turn: TurnId,
    /// The step that made it.
    pub step: u32,
    /// Name of the tool.
    pub name: String,
    pub state: CallState,
    /// Arguments with which an approver replaced the model's.
    pub edited: Option<String>,
    /// Hash of its answer.
    pub answer: Option<String>,
    /// The calls of the same response.
    pub batch: Batch,
}

/// The calls of one model response, as far as an open call needs to know of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Batch {
    /// Number of open calls; 0 for a closed call.
    pub open: u32,
    /// Tokens of the results that are stored until the last result arrives.
    pub waiting: u32,
}

/// State of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallState {
    /// Waits for a result.
    Requested,
    /// Waits for a person's approval.
    AwaitingApproval,
    /// Waits until earlier calls are complete.
    AwaitingEarlierCalls,
    /// Has a result.
    Answered,
    /// Denied by a person.
    Denied,
    /// Timed out, was cancelled with its turn, or was never run.
    Closed,
}

impl CallState {
    /// Whether the call still waits for something.
    pub fn is_open(self) -> bool {
        match self {
            Self::Requested | Self::AwaitingApproval | Self::AwaitingEarlierCalls => true,
            Self::Answered | Self::Denied | Self::Closed => false,
        }
    }
}
