//! Deletes a session: its turn ends, open calls are closed, queued messages are dropped, and the owner of the turn is
//! fenced off.

use std::time::Duration;

use super::{
    CancelRequest, Session, SessionState,
    answers::OpenCall,
    change::{Change, Event},
    ending::{TurnEnd, end_turn},
    ownership::NewOwner,
    queue_rows::{QueueEnd, RemovedMessage, Withdrawal},
};
use crate::model::{CancelCause, DropReason, Fence, TurnId, event::StepPosition};

#[cfg(test)]
mod tests;

/// A deletion.
#[derive(Debug, Clone, Copy)]
pub struct Deletion<'a> {
    /// The fence that the caller read. If it has changed since, nothing is deleted.
    pub fence: Fence,
    /// The live turn that the caller read, and its ending.
    pub turn: Option<(&'a TurnId, TurnEnd<'a>)>,
    /// The revision that must be current. `None` means any.
    pub revision: Option<i64>,
    /// The encoded event of a dropped message.
    pub dropped: &'a [u8],
    /// How long the rows are kept for clients that watch the session.
    pub stay: Duration,
}

/// Deletes a session. Returns `None` if it has changed since the caller read it, or is already deleted.
pub fn delete<'a>(session: &Session, open: &[OpenCall], deletion: &Deletion<'a>) -> Option<Change<'a>> {
    let seen = deletion.turn.as_ref().map(|(turn, _)| *turn);
    let unmoved = session.fence == deletion.fence && session.live_turn() == seen;
    let is_meant = deletion.revision.is_none_or(|it| it == session.revision);
    if session.state == SessionState::Deleted || !unmoved || !is_meant {
        return None;
    }
    let mut change = Change::of(session);
    for waiting in std::mem::take(&mut change.session.queue) {
        let why = Withdrawal::Dropped(DropReason::SessionDeleted);
        change.queue.removed.push(RemovedMessage {
            message: waiting.message.clone(),
            end: QueueEnd::Withdrawn(why),
            event: change.events.len(),
        });
        let event = Event::Withdrawn { message: waiting.message, why, payload: deletion.dropped.to_vec() };
        change.event_at(StepPosition::default(), event);
    }
    if let Some((_, end)) = &deletion.turn {
        change.turn.step_count = Some(end.result.step_count);
        end_turn(&mut change, open, end);
    }
    change.is_use = false;
    change.deletes = true;
    change.lease = Some(deletion.stay);
    let becoming = &mut change.session;
    becoming.state = SessionState::Deleted;
    becoming.fence.epoch += 1;
    becoming.owner = None;
    becoming.open_calls = 0;
    becoming.wake_at = None;
    Some(change)
}

/// Takes the live turn from its owner before a session is deleted, so that it makes no further progress. Returns `None`
/// if no turn is live, it was already taken for that, or `revision` is not the current one.
pub fn take_over_for_deletion(session: &Session, revision: Option<i64>, heir: NewOwner<'_>) -> Option<Change<'static>> {
    session.live_turn()?;
    let cause = session.cancel.as_ref().map(|cancel| cancel.cause);
    let is_meant = revision.is_none_or(|it| it == session.revision);
    if cause == Some(CancelCause::SessionDeleted) || !is_meant {
        return None;
    }
    let mut change = Change::of(session);
    change.lease = Some(heir.lease);
    let becoming = &mut change.session;
    becoming.give_to(heir.replica);
    becoming.cancel =
        Some(CancelRequest { cause: CancelCause::SessionDeleted, reason: String::new(), rollback: false });
    Some(change)
}

/// Whether an idle session was unused for longer than `limit`, or than its own time to live if that is shorter.
pub fn is_unused(session: &Session, unused: Duration, limit: Duration, own: Option<Duration>) -> bool {
    session.state == SessionState::Idle && unused > own.map_or(limit, |own| own.min(limit))
}
