//! The stored data of a session, as the invariants use it.

use std::collections::BTreeMap;

/// A session. Fields that a source does not have keep their default.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    /// The state of the session row.
    pub state: RunState,
    /// The live turn, or the last one if none is live.
    pub turn: String,
    /// The seq of the next event.
    pub next_seq: i64,
    /// The number of open calls, as counted in the session row.
    pub open_calls: i64,
    /// The tokens of the transcript, as counted in the session row.
    pub size: i64,
    /// The current revision of the configuration.
    pub revision: i64,
    /// For a fork, the last seq of the source; else 0.
    pub forked_at: i64,
    /// Ordered by seq.
    pub events: Vec<Event>,
    /// Ordered by seq.
    pub messages: Vec<Message>,
    /// Ordered by message and index. Results are stored before the message that contains them.
    pub parts: Vec<Part>,
    /// Calls that were requested.
    pub calls: Vec<Call>,
    /// Queued messages, pending or ended.
    pub queue: Vec<Queued>,
    pub turns: Vec<Turn>,
    /// In the order in which they were applied.
    pub compactions: Vec<Compaction>,
    /// Messages and overhead, then tokens and parts of the categories 1 to 8.
    pub counters: Vec<i64>,
    /// Results of requests, by idempotency key.
    pub requests: BTreeMap<String, String>,
}

/// The run state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunState {
    /// No turn is live.
    #[default]
    Idle,
    /// A turn has an owner.
    Running,
    /// A turn waits for results.
    Waiting,
    /// The session is deleted.
    Deleted,
}

impl RunState {
    /// Whether a turn is live.
    pub fn is_live(self) -> bool {
        match self {
            Self::Running | Self::Waiting => true,
            Self::Idle | Self::Deleted => false,
        }
    }
}

impl From<i16> for RunState {
    fn from(stored: i16) -> Self {
        match stored {
            0 => Self::Idle,
            1 => Self::Running,
            2 => Self::Waiting,
            3 => Self::Deleted,
            other => panic!("a run has no state {other}"),
        }
    }
}

/// A durable event.
#[derive(Debug, Clone, Default)]
pub struct Event {
    pub seq: i64,
    pub epoch: i64,
    /// Empty if the event belongs to no turn.
    pub turn: String,
    pub kind: String,
    /// Ids of the content that it refers to.
    pub refs: Vec<String>,
}

/// A message of the transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    pub seq: i64,
    pub id: String,
    /// 1 system, 2 user, 3 assistant, 4 tool.
    pub role: i16,
    pub tokens: i64,
    pub summary: bool,
    pub voided: bool,
    /// Empty if the message belongs to no turn.
    pub turn: String,
    pub step: i32,
}

/// A part of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    pub message: String,
    pub idx: i32,
    pub kind: String,
    /// The call that it requests or answers.
    pub call: String,
    pub body: String,
    pub tokens: i64,
    pub category: i16,
}

/// A requested call.
#[derive(Debug, Clone, Default)]
pub struct Call {
    pub id: String,
    pub turn: String,
    /// 0 to 2 open, 3 to 6 closed.
    pub status: i16,
}

impl Call {
    /// Whether it has its result.
    pub fn is_closed(&self) -> bool {
        self.status >= 3
    }
}

/// A queued message.
#[derive(Debug, Clone, Default)]
pub struct Queued {
    pub id: String,
    pub status: QueuedStatus,
    pub request: String,
    /// The seq of the event that ended it; 0 while it is pending.
    pub seq: i64,
    /// The message to which it was applied.
    pub applied_to: String,
    /// A text that only this message contains, by which it is found in the transcript. `None` if the source does not
    /// know one; then the transcript is not searched.
    pub words: Option<String>,
}

/// The status of a queued message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueuedStatus {
    #[default]
    Pending,
    Applied,
    Cancelled,
    Expired,
    Dropped,
}

impl From<i16> for QueuedStatus {
    fn from(stored: i16) -> Self {
        match stored {
            0 => Self::Pending,
            1 => Self::Applied,
            2 => Self::Cancelled,
            3 => Self::Expired,
            4 => Self::Dropped,
            other => panic!("a queued message has no status {other}"),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turn {
    pub id: String,
    pub live: bool,
    pub request: String,
    pub first_seq: i64,
    /// The seq of its terminal event; 0 while it is live.
    pub last_seq: i64,
    /// The model that it calls instead of its session's; empty if they are the same.
    pub model: String,
}

#[derive(Debug, Clone, Default)]
pub struct Compaction {
    pub id: String,
    pub status: i16,
    pub from: i64,
    pub to: i64,
    pub active_from: i64,
    pub summary: String,
}

impl Stored {
    /// Sets the texts of queued messages, by id.
    pub fn set_words<'a>(&mut self, words: impl Fn(&Queued) -> Option<&'a str>) {
        for queued in &mut self.queue {
            queued.words = words(queued).map(str::to_owned);
        }
    }
}
