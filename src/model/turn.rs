//! Turns: their bounds, states and ends.

use std::time::Duration;

use super::{CallId, Failure, FinishReason, MessageId, Usage, UsageTotals};

/// Bounds of a turn, all of them in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Steps; the last step's tools still run.
    pub max_steps: u32,
    /// Tokens of one answer. `None` means the model's limit.
    pub max_output_tokens: Option<u32>,
    /// Tokens of the whole turn over all calls; checked after each step. `None` means no limit.
    pub max_total_tokens: Option<i64>,
    /// From start to end, waiting for tools included.
    pub turn_timeout: Duration,
    /// Waiting for one tool result.
    pub tool_timeout: Duration,
    /// Beyond the turn's time, for one last step without tools; zero: none.
    pub grace: Duration,
}

/// Bounds as a session or a request sets them: what is none is left to the layer below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitsOverride {
    /// Steps.
    pub max_steps: Option<u32>,
    /// Tokens of one answer.
    pub max_output_tokens: Option<u32>,
    /// Tokens of the whole turn.
    pub max_total_tokens: Option<i64>,
    /// From start to end.
    pub turn_timeout: Option<Duration>,
    /// Waiting for one tool result.
    pub tool_timeout: Option<Duration>,
    /// Beyond the turn's time, for one last step without tools.
    pub grace: Option<Duration>,
}

impl LimitsOverride {
    /// These bounds over those of `below`.
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

/// Where a turn stands, as clients see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TurnState {
    /// The model is called, or is about to be.
    Running,
    /// Waiting for the host.
    AwaitingTools,
    /// Ended in the ordinary way.
    Completed,
    /// Cancelled.
    Cancelled,
    /// Failed.
    Failed,
}

impl TurnState {
    /// Whether the turn has ended; an ended turn never changes again.
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
    /// The model was done.
    Stop,
    /// The step limit was reached.
    MaxSteps,
    /// The answer reached its output limit.
    Length,
    /// A filter or a refusal ended the answer.
    ContentFilter,
    /// The token limit of the turn was reached.
    Budget,
    /// The time limit of the turn passed.
    Deadline,
    /// The model stopped without saying anything.
    Empty,
}

/// What cancelled a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CancelCause {
    /// CancelTurn.
    Requested,
    /// A message that interrupts.
    Interrupted,
    /// No client read its events any more.
    Disconnected,
    /// The session was deleted.
    SessionDeleted,
}

/// What a turn was doing when it was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CancelOutcome {
    /// Nothing was cut short.
    None,
    /// The model was writing.
    PartialAssistant,
    /// Tools were running.
    ToolsInProgress,
    /// Not determined: its session was deleted.
    Unknown,
}

/// How a turn ends: exactly one of these, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// In the ordinary way.
    Completed(CompletionReason),
    /// By a cancel.
    Cancelled {
        /// By what.
        cause: CancelCause,
        /// What it was doing.
        outcome: CancelOutcome,
        /// The canceller's words; may be empty.
        reason: String,
        /// What is taken back. `None` means everything is kept.
        undone: Option<Undone>,
    },
    /// With an error.
    Failed(Failure),
}

/// What a rollback takes back of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Undone {
    /// Its messages, in order.
    pub messages: Vec<MessageId>,
    /// Calls whose tools had run: their effects remain.
    pub executed: Vec<CallId>,
}

impl Ending {
    /// The state it leaves the turn in.
    pub fn state(&self) -> TurnState {
        match self {
            Self::Completed(_) => TurnState::Completed,
            Self::Cancelled { .. } => TurnState::Cancelled,
            Self::Failed(_) => TurnState::Failed,
        }
    }
}

/// What came of a turn, so far or in the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnResult {
    /// Steps taken.
    pub step_count: u32,
    /// The last assistant message.
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
        assert!(
            [Completed, Cancelled, Failed]
                .into_iter()
                .all(TurnState::is_final)
        );
        assert!(
            ![Running, AwaitingTools]
                .into_iter()
                .any(TurnState::is_final)
        );
    }
}
