//! Takes queued messages into the transcript: by the owner of a turn, or in an idle session.

use super::{
    QueuedMessage, Session, SessionState,
    change::Change,
    queue_rows::{QueueEnd, RemovedMessage, Withdrawal},
    rows::Rows,
    steps::{Owner, of_owner},
};
use crate::model::{DropReason, Fence, MessageId, Seq};

#[cfg(test)]
mod tests;

/// A message that a take removes from the queue.
#[derive(Debug, Clone, Copy)]
pub struct TakenMessage<'a> {
    pub message: &'a MessageId,
    /// The user message that it is merged into, or the reason why it is dropped.
    pub end: Result<&'a MessageId, DropReason>,
    /// The number of its event among the rows, from 1: [`Rows::count`] after the event was added.
    pub event: i64,
}

/// Whether a take begins the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// No: the messages become part of the current step.
    Stay,
    /// Yes, whatever the current revision.
    AnyRevision,
    /// Yes. The step was prepared for this revision; the take is rejected if another one is current.
    IfRevision(i64),
}

/// Messages to take, and the state that the selection is based on.
#[derive(Debug, Clone, Copy)]
pub struct TakeSelection<'a> {
    /// The newest seq that was read; the take is rejected if events were added since. `None` disables the check.
    pub seen: Option<Seq>,
    /// The rows of the messages in the transcript.
    pub rows: &'a Rows,
    pub taken: &'a [TakenMessage<'a>],
}

impl<'a> TakeSelection<'a> {
    /// Whether the take is still valid: all messages are queued, no calls are open, and the seq is unchanged.
    fn holds(&self, session: &Session) -> bool {
        let unmoved = self.seen.is_none_or(|seen| seen == session.last_seq());
        let waits = |taken: &TakenMessage<'_>| {
            let mut queue = session.queue.iter().filter(|it| it.is_for_this_turn());
            queue.any(|waiting| waiting.message == *taken.message)
        };
        unmoved && session.open_calls == 0 && self.taken.iter().all(waits)
    }

    fn write(&self, change: &mut Change<'a>) {
        change.add(self.rows);
        let is_taken = |waiting: &QueuedMessage| {
            let mut taken = self.taken.iter();
            taken.any(|taken| *taken.message == waiting.message)
        };
        change.session.queue.retain(|waiting| !is_taken(waiting));
        change.queue.removed = self.taken.iter().map(leaving).collect();
    }
}

fn leaving(taken: &TakenMessage<'_>) -> RemovedMessage {
    RemovedMessage {
        message: taken.message.clone(),
        end: match taken.end {
            Ok(into) => QueueEnd::Applied(into.clone()),
            Err(reason) => QueueEnd::Withdrawn(Withdrawal::Dropped(reason)),
        },
        event: usize::try_from(taken.event - 1).unwrap_or_default(),
    }
}

/// Takes messages into the transcript of the turn; they begin the next step if `step` says so. Returns `None` if the
/// session has changed, or a cancel was requested.
pub fn take<'a>(session: &Session, taking: &TakeSelection<'a>, step: Advance, owner: Owner<'_>) -> Option<Change<'a>> {
    let begins = match step {
        Advance::Stay => false,
        Advance::AnyRevision => true,
        Advance::IfRevision(revision) if revision == session.revision => true,
        Advance::IfRevision(_) => return None,
    };
    if session.cancel.is_some() || !taking.holds(session) {
        return None;
    }
    let mut change = of_owner(session, owner);
    if begins {
        change.session.step += 1;
        change.session.attempt = 1;
    }
    taking.write(&mut change);
    Some(change)
}

/// Takes messages into the transcript of an idle session, for this revision of its configuration. This increments the
/// version of the context. The last measured call stays valid, because the new messages come after it. Returns `None`
/// if the session has changed, or a turn started.
pub fn take_idle<'a>(session: &Session, fence: Fence, revision: i64, taking: &TakeSelection<'a>) -> Option<Change<'a>> {
    let is_idle = session.state == SessionState::Idle && session.fence == fence;
    if !is_idle || session.revision != revision || !taking.holds(session) {
        return None;
    }
    let mut change = Change::of(session);
    taking.write(&mut change);
    change.session.extend_context();
    Some(change)
}
