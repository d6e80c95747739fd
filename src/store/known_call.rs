//! What is known of a tool call when it is answered.

use crate::model::TurnId;

/// A tool call as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCall {
    /// The turn that made it.
    pub turn: TurnId,
    /// The step that made it.
    pub step: u32,
    /// The tool.
    pub name: String,
    /// Where it stands.
    pub state: CallState,
    /// The arguments that an approver gave instead of the model's.
    pub edited: Option<String>,
    /// The hash of its answer.
    pub answer: Option<String>,
    /// The calls that were made with it.
    pub batch: Batch,
}

/// The calls of one answer, as far as an open one has to know of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Batch {
    /// How many are open; 0 for a call that is closed.
    pub open: u32,
    /// Tokens of the results that wait for the last one.
    pub waiting: u32,
}

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallState {
    /// The host runs it.
    Requested,
    /// A person is asked.
    AwaitingApproval,
    /// Other calls come first.
    AwaitingTurn,
    /// It has its result.
    Answered,
    /// A person denied it.
    Denied,
    /// It was not answered in time, or the turn ended, or it was never run.
    Closed,
}

impl CallState {
    /// Whether it still waits for something.
    pub fn is_open(self) -> bool {
        match self {
            Self::Requested | Self::AwaitingApproval | Self::AwaitingTurn => true,
            Self::Answered | Self::Denied | Self::Closed => false,
        }
    }
}
