//! Turns: their limits, states and endings.

use std::time::Duration;

use super::{CallId, Failure, FinishReason, MessageId, Usage, UsageTotals};

/// The effective limits of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Number of steps; the tools called in the last step are still run.
    pub max_steps: u32,
    /// Tokens of one response. `None` means the model's limit.
    pub max_output_tokens: Option<u32>,
    /// Tokens of all calls of the turn; checked after each step. `None` means no limit.
    pub max_total_tokens: Option<i64>,
    /// From start to end, including the time spent waiting for tools.
    pub turn_timeout: Duration,
    /// Time to wait for one tool result.
    pub tool_timeout: Duration,
    /// Time in addition to the turn's timeout for one last step without tools; zero means no such step.
    pub grace: Duration,
}

/// Limits as set by a session or a request. `None` means the layer below decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitsOverride {
    pub max_steps: Option<u32>,
    /// Tokens of one response.
    pub max_output_tokens: Option<u32>,
    /// Tokens of all calls of the turn.
    pub max_total_tokens: Option<i64>,
    /// From start to end.
    pub turn_timeout: Option<Duration>,
    /// Time to wait for one tool result.
    pub tool_timeout: Option<Duration>,
    /// Time in addition to the turn's timeout for one last step without tools.
    pub grace: Option<Duration>,
}

impl LimitsOverride {
    /// These limits; unset fields are taken from `below`.
    pub fn over(self, below: Limits) -> Limits {
        Limits {
            max_steps: self.max_steps.unwrap_or(below.max_steps),
            max_output_tokens: self.max_output_tokens.or(below.max_output_tokens),
            max_total_tokens: self.max_total_tokens.or(below.max_total_tokens),
            turn_timeout: self.turn_timeout.unwrap_or(below.turn_timeout),
            tool_timeout: self.tool_timeout.unwrap_or(below.tool_timeout),
            grace: self.grace.unwrap_or(below.grace),
        }
    }
}

/// The state of a turn as reported to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TurnState {
    /// The model is being called, or is about to be.
    Running,
    /// Waiting for the host.
    AwaitingTools,
    Completed,
    Cancelled,
    Failed,
}

impl TurnState {
    /// Whether the turn has ended. The state of an ended turn never changes.
    pub fn is_final(self) -> bool {
        match self {
            Self::Running | Self::AwaitingTools => false,
            Self::Completed | Self::Cancelled | Self::Failed => true,
        }
    }
}

/// Why a completed turn stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CompletionReason {
    /// The model finished.
    Stop,
    /// The step limit was reached.
    MaxSteps,
    /// The response reached its output limit.
    Length,
    /// A content filter or a refusal ended the response.
    ContentFilter,
    /// The token limit of the turn was reached.
    Budget,
    /// The time limit of the turn was reached.
    Deadline,
    /// The model stopped without any output.
    Empty,
}

/// What cancelled a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CancelCause {
    /// A CancelTurn request.
    Requested,
    /// A message with the delivery mode [`Delivery::Interrupt`](super::Delivery::Interrupt).
    Interrupted,
    /// No client was reading its events any more.
    Disconnected,
    SessionDeleted,
}

/// What a turn was doing when it was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CancelOutcome {
    /// Nothing was interrupted.
    None,
    /// The model was responding.
    PartialAssistant,
    /// Tools were running.
    ToolsInProgress,
    /// Not determined, because the session was deleted.
    Unknown,
}

/// How a turn ended; set exactly once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Completed(CompletionReason),
    Cancelled {
        cause: CancelCause,
        outcome: CancelOutcome,
        /// The reason given by the client; may be empty.
        reason: String,
        /// What is rolled back. `None` means everything is kept.
        undone: Option<Undone>,
    },
    Failed(Failure),
}

/// What a rollback removes from a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Undone {
    /// The turn's messages, in order.
    pub messages: Vec<MessageId>,
    /// Calls whose tools had already run: their side effects remain.
    pub executed: Vec<CallId>,
}

impl Ending {
    /// The state of a turn with this ending.
    pub fn state(&self) -> TurnState {
        match self {
            Self::Completed(_) => TurnState::Completed,
            Self::Cancelled { .. } => TurnState::Cancelled,
            Self::Failed(_) => TurnState::Failed,
        }
    }
}

/// The result of a turn, so far or when it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnResult {
    pub step_count: u32,
    pub final_message: Option<MessageId>,
    /// Why the model stopped in the last step.
    pub finish: Option<FinishReason>,
    /// Tokens of the last step's call.
    pub last_step_usage: Option<Usage>,
    /// Tokens of all calls.
    pub total_usage: UsageTotals,
    /// From start to end.
    pub elapsed: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_once_it_neither_runs_nor_waits() {
        use TurnState::{AwaitingTools, Cancelled, Completed, Failed, Running};
        assert!([Completed, Cancelled, Failed].into_iter().all(TurnState::is_final));
        assert!(![Running, AwaitingTools].into_iter().any(TurnState::is_final));
    }
}
