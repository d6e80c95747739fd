//! What is stored of a session.

use std::collections::BTreeMap;

/// A session. What a source does not have is left at its default.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    /// What the row of the run says of its turn.
    pub state: RunState,
    /// The turn of the run; the last one where none is live.
    pub turn: String,
    /// The number of the next event.
    pub next_seq: i64,
    /// How many calls are open, as the run counts them.
    pub open_calls: i64,
    /// Tokens of the transcript, as the run counts them.
    pub size: i64,
    /// The revision of the configuration in force.
    pub revision: i64,
    /// The last seq that is the source's, for a fork; else 0.
    pub forked_at: i64,
    /// In order of seq.
    pub events: Vec<Event>,
    /// In order of seq.
    pub messages: Vec<Message>,
    /// In order of message and index. Results are stored before the message that holds them.
    pub parts: Vec<Part>,
    /// Calls that were requested.
    pub calls: Vec<Call>,
    /// Messages of the queue, pending or ended.
    pub queue: Vec<Queued>,
    /// All turns.
    pub turns: Vec<Turn>,
    /// In the order in which they came in force.
    pub compactions: Vec<Compaction>,
    /// Messages and overhead, then tokens and parts of the categories 1 to 8.
    pub counters: Vec<i64>,
    /// Results of requests by their ids.
    pub requests: BTreeMap<String, String>,
}

/// The state of a session's run.
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
    /// Empty for an event of no turn.
    pub turn: String,
    pub kind: String,
    /// Ids of what it describes.
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
    /// Empty for a message of no turn.
    pub turn: String,
    pub step: i32,
}

/// A part of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    pub message: String,
    pub idx: i32,
    pub kind: String,
    /// The call that it makes or answers.
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

/// A message of the queue.
#[derive(Debug, Clone, Default)]
pub struct Queued {
    pub id: String,
    pub status: QueuedStatus,
    pub request: String,
    /// Of the event that ended it; 0 while it is pending.
    pub seq: i64,
    /// The message that it went into.
    pub applied_to: String,
    /// Words that only this message has, by which it is found in the transcript. `None` if its
    /// source does not know them: then it is not looked for.
    pub words: Option<String>,
}

/// The status of a message of the queue.
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

/// A turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turn {
    pub id: String,
    pub live: bool,
    pub request: String,
    pub first_seq: i64,
    /// Of its terminal event; 0 while it is live.
    pub last_seq: i64,
    /// The model that it calls in place of its session's; empty where that is the same.
    pub model: String,
}

/// A compaction.
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
    /// Sets the words of queued messages, by their ids.
    pub fn set_words<'a>(&mut self, words: impl Fn(&Queued) -> Option<&'a str>) {
        for queued in &mut self.queue {
            queued.words = words(queued).map(str::to_owned);
        }
    }
}
