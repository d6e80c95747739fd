//! What the owner of a turn reads: the turn and the transcript.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    model::{Anchor, Message, MessageId, Seq, SessionConfig, UsageTotals, command::TurnRequest},
    session::CancelRequest,
};

/// A configuration and which one it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Its number.
    pub number: i64,
    /// The configuration.
    pub config: SessionConfig,
}

/// A turn as its owner needs it.
#[derive(Debug, Clone)]
pub struct Owned {
    /// The step it is at.
    pub step: u32,
    /// The attempt at it.
    pub attempt: u32,
    /// Takeovers without progress.
    pub takeovers: u32,
    /// Calls that wait for results.
    pub open_calls: u32,
    /// A cancel was requested.
    pub cancel: Option<CancelRequest>,
    /// How much time is left; zero when it passed.
    pub time_left: Duration,
    /// How long ago its time was up; zero while it is not.
    pub overtime: Duration,
    /// The step began when the turn's time was up.
    pub late: bool,
    /// When it started.
    pub started_at: Timestamp,
    /// The database's time when this was read.
    pub read_at: Timestamp,
    /// What it does differently from its session.
    pub request: TurnRequest,
    /// The configuration that the step was made for.
    pub made_for: Revision,
    /// The session's configuration in force, if that is another one.
    pub newer: Option<Revision>,
    /// Tokens spent so far.
    pub totals: UsageTotals,
    /// The last assistant message.
    pub final_message: Option<MessageId>,
    /// Tokens of the live transcript.
    pub context_tokens: i64,
    /// Its version.
    pub context_version: i64,
    /// The last call that was measured.
    pub anchor: Option<Anchor>,
    /// The newest seq.
    pub last_seq: Seq,
    /// Messages wait for the turn.
    pub waiting: bool,
    /// Where in a trace it began.
    pub trace: Option<String>,
}

impl Owned {
    /// The configuration that the next step is to be made for.
    pub fn in_force(&self) -> &Revision {
        self.newer.as_ref().unwrap_or(&self.made_for)
    }

    /// Whether a call that is made now is sent no tools: the turn's time is up, or was when the step
    /// began.
    pub fn is_late(&self) -> bool {
        self.late || self.time_left.is_zero()
    }

    /// How much of the time after the turn's own is left.
    pub fn grace_left(&self, grace: Duration) -> Duration {
        grace.saturating_sub(self.overtime)
    }

    /// How much of all its time is left.
    pub fn time_with_grace(&self, grace: Duration) -> Duration {
        self.time_left + self.grace_left(grace)
    }

    /// From the start of the turn to this look at it.
    pub fn elapsed(&self) -> Duration {
        Duration::try_from(self.read_at.duration_since(self.started_at)).unwrap_or_default()
    }
}

/// What the model sees, at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The messages in order.
    pub messages: Vec<Message>,
    /// The version of the context. `None` if there is no message. At 0 nothing was ever hidden
    /// from the model.
    pub context_version: Option<i64>,
    /// Bytes of the messages that were read, as they are stored.
    pub bytes: usize,
}
