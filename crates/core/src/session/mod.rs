//! A session as a value, and the changes that inputs cause: pure functions, without a database, a clock or IO. To
//! change a session, a caller reads it, calls one of these functions, and commits the resulting change with
//! `store::commit`, which rejects it if the session was written concurrently.

pub mod answers;
pub mod append;
pub mod cancel;
pub mod change;
pub mod compaction;
pub mod compaction_rows;
pub mod config_rows;
pub mod cost;
pub mod counters;
pub mod creation;
pub mod deletion;
pub mod ending;
pub mod fork;
pub mod fork_rows;
pub mod import;
pub mod import_rows;
pub mod mark_rows;
pub mod marks;
pub mod new_calls;
pub mod old_events;
pub mod ownership;
pub mod queue;
pub mod queue_rows;
pub mod revision;
pub mod rollback;
pub mod rows;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod schedule;
pub mod start;
pub mod steps;
pub mod take;
pub mod usage;

use jiff::Timestamp;

use compaction_rows::RunningCompaction;
use counters::TokenCounters;

use crate::model::{Anchor, CancelCause, Delivery, Fence, MessageId, Seq, TurnId};

/// Version of a session's row, compared by a commit. Each write sets a new random number, so that no version recurs
/// after a failover that lost commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(pub i64);

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionState {
    /// No turn is live.
    Idle,
    /// A turn is running.
    Running,
    /// A turn waits for tool results.
    AwaitingTools,
    /// Deleted; some of its rows may still exist.
    Deleted,
}

impl SessionState {
    /// Whether a turn is live.
    pub fn is_live(self) -> bool {
        match self {
            Self::Running | Self::AwaitingTools => true,
            Self::Idle | Self::Deleted => false,
        }
    }
}

/// A request to cancel the live turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequest {
    pub cause: CancelCause,
    /// The reason given by the client.
    pub reason: String,
    /// Roll back the turn's messages.
    pub rollback: bool,
}

/// A queued message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    pub message: MessageId,
    /// When it is taken.
    pub delivery: Delivery,
    /// It starts a turn if none is running.
    pub starts_turn: bool,
    /// It is the input of an ExecuteTurn whose client waits for a turn.
    pub of_execute: bool,
    /// The message is dropped after this time. `None` means never.
    pub expires_at: Option<Timestamp>,
}

impl QueuedMessage {
    /// Whether the running turn takes it before it ends.
    pub fn is_for_this_turn(&self) -> bool {
        match self.delivery {
            Delivery::Asap | Delivery::Interrupt => true,
            Delivery::WhenIdle => false,
        }
    }

    /// Whether it starts a turn even after a turn that failed or was cancelled.
    fn starts_in_any_case(&self) -> bool {
        self.of_execute || self.delivery == Delivery::Interrupt
    }
}

/// The state that decisions about a session are based on: its session row, and its queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    pub state: SessionState,
    /// The epoch is incremented when the owner changes, the operation number with each write of the owner.
    pub fence: Fence,
    /// The replica that wrote the last operation.
    pub written_by: Option<String>,
    /// The replica that runs the turn.
    pub owner: Option<String>,
    /// The owner's lease has expired. Also set if there is no owner.
    pub lease_is_over: bool,
    /// Takeovers since the last committed step.
    pub takeovers: u32,
    /// A cancel request for the turn.
    pub cancel: Option<CancelRequest>,
    /// The live turn, or the last one.
    pub turn: Option<TurnId>,
    /// The step of that turn.
    pub step: u32,
    /// The attempt at that step.
    pub attempt: u32,
    /// Number of calls of the turn without a result.
    pub open_calls: u32,
    /// When the open calls of a waiting turn have to be checked.
    pub wake_at: Option<Timestamp>,
    /// When the turn times out.
    pub turn_deadline: Option<Timestamp>,
    /// The seq of the next event.
    pub next_seq: Seq,
    /// The current revision of the configuration.
    pub revision: i64,
    /// Counters of the live transcript.
    pub counters: TokenCounters,
    /// The last measured model call.
    pub anchor: Option<Anchor>,
    /// Moving average of the growth of prompts, in tokens from one prompt to the next. `None` before two prompts of one
    /// model were measured.
    pub growth: Option<f64>,
    /// The version of the context. Compactions, and messages added outside of turns, increment it.
    pub context_version: i64,
    /// The running compaction.
    pub compaction: Option<RunningCompaction>,
    /// The queued messages, in order.
    pub queue: Vec<QueuedMessage>,
}

impl Session {
    /// The live turn.
    pub fn live_turn(&self) -> Option<&TurnId> {
        self.turn.as_ref().filter(|_| self.state.is_live())
    }

    /// Estimated tokens of the live transcript.
    pub fn context_tokens(&self) -> i64 {
        self.counters.size()
    }

    /// The seq of the newest event.
    pub fn last_seq(&self) -> Seq {
        Seq(self.next_seq.0 - 1)
    }

    /// Whether this replica runs the turn, according to the row.
    pub fn is_owned_by(&self, replica: &str) -> bool {
        self.state == SessionState::Running && self.owner.as_deref() == Some(replica)
    }

    /// Whether the live turn has no owner, or one whose lease has expired.
    pub fn is_ownerless(&self) -> bool {
        match self.state {
            SessionState::AwaitingTools => true,
            SessionState::Running => self.lease_is_over,
            SessionState::Idle | SessionState::Deleted => false,
        }
    }

    /// Makes a replica the owner of the turn. Writes of the previous owner under the old epoch are rejected.
    fn give_to(&mut self, replica: &str) {
        self.state = SessionState::Running;
        self.fence.epoch += 1;
        self.owner = Some(replica.to_owned());
        self.lease_is_over = false;
    }

    /// Increments the version of the context for a change that only adds messages. The last measurement and a running
    /// compaction, which concern earlier messages, stay valid.
    fn extend_context(&mut self) {
        let before = self.context_version;
        self.context_version += 1;
        let measured = self.anchor.as_mut();
        if let Some(anchor) = measured.filter(|anchor| anchor.version == before) {
            anchor.version += 1;
        }
        let running = self.compaction.as_mut();
        if let Some(running) = running.filter(|running| running.context_version == before) {
            running.context_version += 1;
        }
    }

    /// Whether messages are queued that the turn takes before it ends.
    pub fn has_messages_for_turn(&self) -> bool {
        self.queue.iter().any(QueuedMessage::is_for_this_turn)
    }

    /// Ids of the queued messages, in order.
    pub(super) fn waiting(&self) -> Vec<MessageId> {
        let waiting = self.queue.iter();
        waiting.map(|waiting| waiting.message.clone()).collect()
    }

    /// Lets a new turn take the messages that were queued for the end of the previous one. Returns their ids.
    pub(super) fn promote_to_asap(&mut self) -> Vec<MessageId> {
        let late = |waiting: &&mut QueuedMessage| waiting.delivery == Delivery::WhenIdle;
        let late = self.queue.iter_mut().filter(late);
        late.map(|waiting| {
            waiting.delivery = Delivery::Asap;
            waiting.message.clone()
        })
        .collect()
    }

    /// After a turn that failed or was cancelled, only some messages still start a turn. Returns the ids of those that
    /// no longer do.
    pub(super) fn clear_turn_starts(&mut self) -> Vec<MessageId> {
        let starts = |waiting: &&mut QueuedMessage| waiting.starts_turn && !waiting.starts_in_any_case();
        let starting = self.queue.iter_mut().filter(starts);
        starting
            .map(|waiting| {
                waiting.starts_turn = false;
                waiting.message.clone()
            })
            .collect()
    }
}
