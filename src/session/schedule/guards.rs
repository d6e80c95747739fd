//! Guards, each of which can be switched off: a replica then decides as if the session were such that the
//! guard lets it pass.

use super::super::{Session, SessionState, Waiting};
use crate::model::Delivery;

/// A guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// A commit compares which write left the session as it was seen.
    Version,
    /// Only the owner writes as the owner.
    Owner,
    /// No turn that somebody runs is taken over.
    LeaseInTakeover,
    /// A turn is taken over under the epoch that it was seen with.
    EpochInTakeover,
    /// No turn finishes for which a message waits.
    MessagesInFinish,
    /// No turn finishes that is to be cancelled.
    CancelInFinish,
    /// No turn finishes between calls and their results.
    OpenCallsInFinish,
    /// No message is taken between calls and their results.
    OpenCallsInTake,
    /// No message is taken that waits no longer.
    QueueInTake,
    /// No message is taken into a turn that is to be cancelled.
    CancelInTake,
    /// The same of an idle session in which a turn began.
    StateInTakeIdle,
    /// No turn begins in a session that has one.
    StateInStart,
    /// No turn begins for a message that waits no longer.
    QueueInStart,
    /// A turn begins with the configuration in force.
    RevisionInStart,
    /// A step begins with the configuration in force.
    RevisionInBegin,
    /// No answer counts of a turn that is being cancelled.
    CancelInAnswers,
    /// No more messages wait than may.
    Full,
    /// A configuration is made from the one in force.
    RevisionInUpdate,
    /// No compaction begins while one is being made.
    RunningInCompact,
    /// No compaction comes in force that was given up.
    RunningInSwap,
    /// No compaction comes in force in another context than it was made from.
    ContextInSwap,
    /// No compaction is taken back that others build on.
    InForceInRevert,
}

impl Guard {
    pub(super) const ALL: [Self; 22] = [
        Self::Version,
        Self::Owner,
        Self::LeaseInTakeover,
        Self::EpochInTakeover,
        Self::MessagesInFinish,
        Self::CancelInFinish,
        Self::OpenCallsInFinish,
        Self::OpenCallsInTake,
        Self::QueueInTake,
        Self::CancelInTake,
        Self::StateInTakeIdle,
        Self::StateInStart,
        Self::QueueInStart,
        Self::RevisionInStart,
        Self::RevisionInBegin,
        Self::CancelInAnswers,
        Self::Full,
        Self::RevisionInUpdate,
        Self::RunningInCompact,
        Self::RunningInSwap,
        Self::ContextInSwap,
        Self::InForceInRevert,
    ];

    /// How the violations begin by which it is found.
    pub(super) fn found(self) -> &'static [&'static str] {
        match self {
            Self::Version => &["I1", "I2", "I3", "I4", "I9"],
            Self::Owner => &["I2"],
            Self::LeaseInTakeover => &["I2 a lease in force"],
            Self::EpochInTakeover => &["I2 a takeover that was not looked for"],
            Self::MessagesInFinish => &["I3 a message is left behind"],
            Self::CancelInFinish => &["I9 a cancel is lost", "I9 a cancel is forgotten"],
            Self::OpenCallsInFinish => &["I4 a turn ends between"],
            Self::OpenCallsInTake => &["I4 a message between"],
            Self::QueueInTake => &["I3 a message ends"],
            Self::CancelInTake => &["I3 a message is taken into a turn that is to end"],
            Self::StateInTakeIdle => &["I2 a turn that runs", "I2 an owner's write"],
            Self::StateInStart => &["I2 a turn begins"],
            Self::QueueInStart => &["I3 a turn begins for"],
            Self::RevisionInStart | Self::RevisionInBegin => &["I5"],
            Self::RevisionInUpdate => &["I5 a configuration"],
            Self::RunningInCompact => &["I5 two compactions"],
            Self::RunningInSwap => &[
                "I5 a compaction that was given up",
                "I5 a compaction of another",
            ],
            Self::ContextInSwap => &["I5 a compaction of another context"],
            Self::InForceInRevert => &["I5 a compaction goes"],
            Self::CancelInAnswers => &["I9 an answer"],
            Self::Full => &["I3 more messages"],
        }
    }
}

/// The session by which an owner decides about the end of its turn.
pub(super) fn in_finish(session: &Session, guard: Option<Guard>) -> Session {
    let mut session = session.clone();
    if guard == Some(Guard::MessagesInFinish) {
        for waiting in &mut session.queue {
            waiting.delivery = Delivery::WhenIdle;
        }
    }
    if guard == Some(Guard::CancelInFinish) {
        session.cancel = None;
    }
    if guard == Some(Guard::OpenCallsInFinish) {
        session.open_calls = 0;
    }
    session
}

/// The same about a take of what it saw waiting.
pub(super) fn in_take(session: &Session, waited: &[Waiting], guard: Option<Guard>) -> Session {
    let mut session = session.clone();
    if guard == Some(Guard::OpenCallsInTake) {
        session.open_calls = 0;
    }
    if guard == Some(Guard::QueueInTake) {
        waits_all_the_same(&mut session, waited);
    }
    if guard == Some(Guard::CancelInTake) {
        session.cancel = None;
    }
    session
}

/// The same about the beginning of a turn for a message.
pub(super) fn in_start(session: &Session, starter: &Waiting, guard: Option<Guard>) -> Session {
    let mut session = session.clone();
    if guard == Some(Guard::StateInStart) {
        session.state = SessionState::Idle;
    }
    if guard == Some(Guard::QueueInStart) {
        waits_all_the_same(&mut session, std::slice::from_ref(starter));
    }
    session
}

/// Messages that wait no longer seem to.
fn waits_all_the_same(session: &mut Session, messages: &[Waiting]) {
    for message in messages {
        if !session.queue.iter().any(|it| it.message == message.message) {
            session.queue.push(message.clone());
        }
    }
}
