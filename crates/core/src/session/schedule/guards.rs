//! Guards, each of which can be switched off: a replica then decides as if the session were in a state that passes the
//! guard.

use super::super::{QueuedMessage, Session, SessionState};
use crate::model::Delivery;

/// A guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// A commit compares the version of the row with the one read.
    Version,
    /// Only the owner writes as the owner.
    Owner,
    /// No turn with a valid lease is taken over.
    LeaseInTakeover,
    /// A turn is taken over under the epoch that was read.
    EpochInTakeover,
    /// No turn finishes while a message is queued for it.
    MessagesInFinish,
    /// No turn finishes if a cancel was requested.
    CancelInFinish,
    /// No turn finishes between calls and their results.
    OpenCallsInFinish,
    /// No message is taken between calls and their results.
    OpenCallsInTake,
    /// No message is taken that is no longer queued.
    QueueInTake,
    /// No message is taken into a turn if a cancel was requested.
    CancelInTake,
    /// No message is taken as in an idle session after a turn started.
    StateInTakeIdle,
    /// No message is taken in an idle session between calls of a host and their results.
    OpenCallsInTakeIdle,
    /// No turn starts while another one is live.
    StateInStart,
    /// No turn starts between calls of a host and their results.
    OpenCallsInStart,
    /// No turn starts for a message that is no longer queued.
    QueueInStart,
    /// A turn starts with the current configuration.
    RevisionInStart,
    /// A step starts with the current configuration.
    RevisionInBegin,
    /// A step that takes messages starts with the current configuration.
    RevisionInTake,
    /// No answer is accepted if a cancel was requested.
    CancelInAnswers,
    /// The queue does not exceed its limit.
    Full,
    /// A new configuration is based on the current one.
    RevisionInUpdate,
    /// Only one compaction runs at a time.
    RunningInCompact,
    /// No compaction is applied after it failed.
    RunningInSwap,
    /// A compaction is applied only to the context that it is based on.
    ContextInSwap,
    /// No compaction is reverted while others build on it.
    InForceInRevert,
    /// No session is deleted that has changed since it was read.
    SeenInDelete,
    /// Messages are appended only to the context that the host read.
    SeenInImport,
}

impl Guard {
    pub(super) const ALL: [Self; 27] = [
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
        Self::OpenCallsInTakeIdle,
        Self::StateInStart,
        Self::OpenCallsInStart,
        Self::QueueInStart,
        Self::RevisionInStart,
        Self::RevisionInBegin,
        Self::RevisionInTake,
        Self::CancelInAnswers,
        Self::Full,
        Self::RevisionInUpdate,
        Self::RunningInCompact,
        Self::RunningInSwap,
        Self::ContextInSwap,
        Self::InForceInRevert,
        Self::SeenInDelete,
        Self::SeenInImport,
    ];

    /// Prefixes of the violations by which a missing guard is found.
    pub(super) fn found(self) -> &'static [&'static str] {
        match self {
            Self::Version => &["I1", "I2", "I3", "I4", "I9"],
            Self::Owner => &["I2"],
            Self::LeaseInTakeover => &["I2 a lease in force"],
            Self::EpochInTakeover => &["I2 a takeover that was not looked for"],
            Self::MessagesInFinish => &["I3 a message is left behind"],
            Self::CancelInFinish => &["I9 a cancel is lost", "I9 a cancel is forgotten"],
            Self::OpenCallsInFinish => &["I4 a turn ends between"],
            Self::OpenCallsInTake | Self::OpenCallsInTakeIdle => &["I4 a message between"],
            Self::QueueInTake => &["I3 a message ends"],
            Self::CancelInTake => &["I3 a message is taken into a turn that is to end"],
            Self::StateInTakeIdle => &["I2 a turn that runs", "I2 an owner's write"],
            Self::StateInStart => &["I2 a turn begins"],
            Self::OpenCallsInStart => &["I4 a turn begins between"],
            Self::QueueInStart => &["I3 a turn begins for"],
            Self::RevisionInStart | Self::RevisionInBegin | Self::RevisionInTake => &["I5"],
            Self::RevisionInUpdate => &["I5 a configuration"],
            Self::RunningInCompact => &["I5 two compactions"],
            Self::RunningInSwap => &["I5 a compaction that was given up", "I5 a compaction of another"],
            Self::ContextInSwap => &["I5 a compaction of another context"],
            Self::InForceInRevert => &["I5 a compaction goes"],
            Self::SeenInDelete => &["I2 a session is deleted that went on"],
            Self::SeenInImport => &["I5 messages are appended"],
            Self::CancelInAnswers => &["I9 an answer"],
            Self::Full => &["I3 more messages"],
        }
    }
}

/// The session state on which an owner bases a decision about the end of its turn.
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

/// The session state for a take of the messages that were read as queued.
pub(super) fn in_take(session: &Session, waited: &[QueuedMessage], guard: Option<Guard>) -> Session {
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

/// The session state for the start of a turn for a message.
pub(super) fn in_start(session: &Session, starter: &QueuedMessage, guard: Option<Guard>) -> Session {
    let mut session = session.clone();
    if guard == Some(Guard::StateInStart) {
        session.state = SessionState::Idle;
    }
    if guard == Some(Guard::QueueInStart) {
        waits_all_the_same(&mut session, std::slice::from_ref(starter));
    }
    session
}

/// Makes messages appear to be still queued.
fn waits_all_the_same(session: &mut Session, messages: &[QueuedMessage]) {
    for message in messages {
        if !session.queue.iter().any(|it| it.message == message.message) {
            session.queue.push(message.clone());
        }
    }
}
