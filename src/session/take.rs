//! Waiting messages become part of the transcript: by the owner of a turn, or in an idle session.

use super::{
    Session, SessionState, Waiting,
    change::Change,
    queue_rows::{Leaving, QueueEnd, Withdrawal},
    rows::Rows,
    steps::{Owner, of_owner},
};
use crate::model::{DropReason, Fence, MessageId, Seq};

#[cfg(test)]
mod tests;

/// One message that a take ends.
#[derive(Debug, Clone, Copy)]
pub struct Taken<'a> {
    /// Which.
    pub message: &'a MessageId,
    /// The user message it goes into, or why it is given up instead.
    pub end: Result<&'a MessageId, DropReason>,
    /// Which of the rows' events says so, from 1: [`Rows::count`] after it was added.
    pub event: i64,
}

/// Whether a take begins the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// No: the messages go into the step that the turn is at.
    Stay,
    /// Yes.
    InAnyCase,
    /// Yes, one made for this revision of the configuration: another one in force refuses it.
    MadeFor(i64),
}

/// Messages that are about to be taken, by what was seen of the session.
#[derive(Debug, Clone, Copy)]
pub struct Taking<'a> {
    /// The newest seq that was seen: nothing may have moved since. `None`: whatever others wrote.
    pub seen: Option<Seq>,
    /// What becomes of the messages in the transcript.
    pub rows: &'a Rows,
    /// The messages.
    pub taken: &'a [Taken<'a>],
}

impl<'a> Taking<'a> {
    /// Whether it still holds: all messages wait, and never between calls and their results.
    fn holds(&self, session: &Session) -> bool {
        let unmoved = self.seen.is_none_or(|seen| seen == session.last_seq());
        let waits = |taken: &Taken<'_>| {
            let mut queue = session.queue.iter().filter(|it| it.is_for_this_turn());
            queue.any(|waiting| waiting.message == *taken.message)
        };
        unmoved && session.open_calls == 0 && self.taken.iter().all(waits)
    }

    fn write(&self, change: &mut Change<'a>) {
        change.add(self.rows);
        let is_taken = |waiting: &Waiting| {
            let mut taken = self.taken.iter();
            taken.any(|taken| *taken.message == waiting.message)
        };
        change.session.queue.retain(|waiting| !is_taken(waiting));
        change.queue.leave = self.taken.iter().map(leaving).collect();
    }
}

fn leaving(taken: &Taken<'_>) -> Leaving {
    Leaving {
        message: taken.message.clone(),
        end: match taken.end {
            Ok(into) => QueueEnd::Applied(into.clone()),
            Err(reason) => QueueEnd::Withdrawn(Withdrawal::Dropped(reason)),
        },
        event: usize::try_from(taken.event - 1).unwrap_or_default(),
    }
}

/// Takes messages into the transcript of the turn; they begin the next step if `step` says so. `None`: the
/// session has changed, or the turn was cancelled.
pub fn take<'a>(
    session: &Session,
    taking: &Taking<'a>,
    step: Advance,
    owner: Owner<'_>,
) -> Option<Change<'a>> {
    let begins = match step {
        Advance::Stay => false,
        Advance::InAnyCase => true,
        Advance::MadeFor(revision) if revision == session.revision => true,
        Advance::MadeFor(_) => return None,
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

/// Takes messages into the transcript of an idle session, for this revision of its configuration. This raises
/// the context version. The last measured call still applies, because the new messages come after it.
/// `None`: the session has changed, or a turn began.
pub fn take_idle<'a>(
    session: &Session,
    fence: Fence,
    revision: i64,
    taking: &Taking<'a>,
) -> Option<Change<'a>> {
    let is_idle = session.state == SessionState::Idle && session.fence == fence;
    if !is_idle || session.revision != revision || !taking.holds(session) {
        return None;
    }
    let mut change = Change::of(session);
    taking.write(&mut change);
    change.session.extend_context();
    Some(change)
}
