//! The data that the owner of a turn reads: the turn and the transcript.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    model::{Anchor, Message, MessageId, Seq, SessionConfig, UsageTotals, command::TurnRequest},
    session::CancelRequest,
};

/// A configuration with its revision number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    pub number: i64,
    pub config: SessionConfig,
}

/// A turn, with the data its owner needs.
#[derive(Debug, Clone)]
pub struct OwnedTurn {
    /// The current step.
    pub step: u32,
    /// The current attempt of the step.
    pub attempt: u32,
    /// Steps whose response is committed. A compaction may have hidden the response of the current one.
    pub completed_steps: u32,
    /// Number of takeovers without progress.
    pub takeovers: u32,
    /// Number of calls that wait for results.
    pub open_calls: u32,
    /// The cancel request, if there is one.
    pub cancel: Option<CancelRequest>,
    /// Time until the turn's deadline; zero if it has passed.
    pub time_left: Duration,
    /// Time since the turn's deadline; zero if it has not passed.
    pub overtime: Duration,
    /// Whether the step began after the turn's deadline.
    pub late: bool,
    pub started_at: Timestamp,
    /// The database's time of the read.
    pub read_at: Timestamp,
    /// The settings in which it differs from its session.
    pub request: TurnRequest,
    /// The configuration for which the step was prepared.
    pub prepared_for: Revision,
    /// The session's current configuration, if it is a newer one.
    pub newer: Option<Revision>,
    /// Tokens spent so far.
    pub totals: UsageTotals,
    /// The last assistant message.
    pub final_message: Option<MessageId>,
    /// Tokens of the live transcript.
    pub context_tokens: i64,
    /// Version of the context.
    pub context_version: i64,
    /// The last measured call.
    pub anchor: Option<Anchor>,
    pub last_seq: Seq,
    /// Whether messages are queued for the turn.
    pub waiting: bool,
    /// The trace context in which it began.
    pub trace: Option<String>,
}

impl OwnedTurn {
    /// Returns the configuration for which the next step must be prepared.
    pub fn in_force(&self) -> &Revision {
        self.newer.as_ref().unwrap_or(&self.prepared_for)
    }

    /// Whether a model call made now is sent without tools, because the turn's deadline has passed or had passed when
    /// the step began.
    pub fn is_late(&self) -> bool {
        self.late || self.time_left.is_zero()
    }

    /// Returns how much of the grace period after the deadline is left.
    pub fn grace_left(&self, grace: Duration) -> Duration {
        grace.saturating_sub(self.overtime)
    }

    /// Returns the time until the end of the grace period.
    pub fn time_with_grace(&self, grace: Duration) -> Duration {
        self.time_left + self.grace_left(grace)
    }

    /// Returns the time from the start of the turn to this read.
    pub fn elapsed(&self) -> Duration {
        Duration::try_from(self.read_at.duration_since(self.started_at)).unwrap_or_default()
    }
}

/// The messages that the model sees, at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VisibleTranscript {
    /// The messages in order.
    pub messages: Vec<Message>,
    /// Version of the context. `None` if there is no message. At version 0 nothing was ever hidden from the model.
    pub context_version: Option<i64>,
    /// Stored size of these messages, in bytes.
    pub bytes: usize,
}
