//! A session as a value, and what each input makes of it: pure functions, without a database, a clock
//! or IO. Whoever changes a session reads it, asks one of these for the change, and writes the change
//! with `store::commit`, which refuses it if the session was written meanwhile.

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

use compaction_rows::Running;
use counters::Shift;

use crate::model::{Anchor, CancelCause, Delivery, Fence, MessageId, Seq, TurnId};

/// Which write left a session as it is. A commit compares it. Each is a random number: after a failover that lost commits none comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(pub i64);

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionState {
    /// No live turn.
    Idle,
    /// A turn runs.
    Running,
    /// A turn waits for results.
    AwaitingTools,
    /// Deleted; rows may still be there.
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

/// A cancel of the live turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequest {
    /// By what.
    pub cause: CancelCause,
    /// The canceller's words.
    pub reason: String,
    /// The turn's messages are to be taken back.
    pub rollback: bool,
}

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its id.
    pub message: MessageId,
    /// When it is to be taken.
    pub delivery: Delivery,
    /// It starts a turn when none runs.
    pub starts_turn: bool,
    /// It is the input of an ExecuteTurn, whose client waits for a turn.
    pub of_execute: bool,
    /// When it is given up.
    pub expires_at: Option<Timestamp>,
}

impl Waiting {
    /// Whether the turn that runs takes it before it ends.
    pub fn is_for_this_turn(&self) -> bool {
        match self.delivery {
            Delivery::Asap | Delivery::Interrupt => true,
            Delivery::WhenIdle => false,
        }
    }

    /// Whether it starts a turn also after one that failed or was cancelled.
    fn starts_in_any_case(&self) -> bool {
        self.of_execute || self.delivery == Delivery::Interrupt
    }
}

/// What a session decides by: its hot row, and what waits in its queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Where it stands.
    pub state: SessionState,
    /// Its epoch is raised whenever the owner changes, its operation by each write of the owner.
    pub fence: Fence,
    /// The replica that made the last operation.
    pub written_by: Option<String>,
    /// The replica that runs its turn.
    pub owner: Option<String>,
    /// The owner's lease has run out. A session without an owner has none.
    pub lease_is_over: bool,
    /// Takeovers since the last committed step.
    pub takeovers: u32,
    /// A cancel of the turn was requested.
    pub cancel: Option<CancelRequest>,
    /// The live turn, or the last one.
    pub turn: Option<TurnId>,
    /// The step of that turn.
    pub step: u32,
    /// The attempt at that step.
    pub attempt: u32,
    /// Calls of the turn that wait for something.
    pub open_calls: u32,
    /// When somebody has to look at the open calls of a turn that waits.
    pub wake_at: Option<Timestamp>,
    /// When the turn's time is up.
    pub turn_deadline: Option<Timestamp>,
    /// The seq of the next event.
    pub next_seq: Seq,
    /// The configuration in force.
    pub revision: i64,
    /// What its live transcript is made of.
    pub counters: Shift,
    /// Its last measured call.
    pub anchor: Option<Anchor>,
    /// By how many tokens its prompts grow from one to the next, the last ones weighing most. `None`
    /// before there were two of one model.
    pub growth: Option<f64>,
    /// The version of its context. Compactions, and messages that are added outside of turns, raise it.
    pub context_version: i64,
    /// The compaction that is being made.
    pub compaction: Option<Running>,
    /// The messages that wait, in their order.
    pub queue: Vec<Waiting>,
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

    /// The newest seq.
    pub fn last_seq(&self) -> Seq {
        Seq(self.next_seq.0 - 1)
    }

    /// Whether this replica runs the turn, as far as it is known.
    pub fn is_owned_by(&self, replica: &str) -> bool {
        self.state == SessionState::Running && self.owner.as_deref() == Some(replica)
    }

    /// Whether a live turn has nobody who runs it.
    pub fn is_ownerless(&self) -> bool {
        match self.state {
            SessionState::AwaitingTools => true,
            SessionState::Running => self.lease_is_over,
            SessionState::Idle | SessionState::Deleted => false,
        }
    }

    /// Gives the turn to a replica. What its owner before wrote under the old epoch is refused.
    fn give_to(&mut self, replica: &str) {
        self.state = SessionState::Running;
        self.fence.epoch += 1;
        self.owner = Some(replica.to_owned());
        self.lease_is_over = false;
    }

    /// The context has a new version, which only adds messages to the one before: what was measured holds
    /// for the same messages, and a compaction that is being made stands for messages before those.
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

    /// Whether messages wait that the turn takes before it ends.
    pub fn messages_wait(&self) -> bool {
        self.queue.iter().any(Waiting::is_for_this_turn)
    }

    /// The messages that wait, in their order.
    pub(super) fn waiting(&self) -> Vec<MessageId> {
        let waiting = self.queue.iter();
        waiting.map(|waiting| waiting.message.clone()).collect()
    }

    /// Lets a new turn take the messages that waited for the previous one to end. Returns their ids.
    pub(super) fn hurry(&mut self) -> Vec<MessageId> {
        let late = |waiting: &&mut Waiting| waiting.delivery == Delivery::WhenIdle;
        let late = self.queue.iter_mut().filter(late);
        late.map(|waiting| {
            waiting.delivery = Delivery::Asap;
            waiting.message.clone()
        })
        .collect()
    }

    /// After a turn that failed or was cancelled, only some messages start a turn of their own. Returns the
    /// ids of those that no longer do.
    pub(super) fn calm(&mut self) -> Vec<MessageId> {
        let starts = |waiting: &&mut Waiting| waiting.starts_turn && !waiting.starts_in_any_case();
        let starting = self.queue.iter_mut().filter(starts);
        starting
            .map(|waiting| {
                waiting.starts_turn = false;
                waiting.message.clone()
            })
            .collect()
    }
}
