//! The queue: messages are enqueued, a message may interrupt the running turn, and queued messages may be withdrawn. A
//! turn does not complete while a message is queued for it.

use jiff::Timestamp;

use super::{
    CancelRequest, Session, SessionState, Waiting,
    cancel::{self, Cancel},
    change::{Change, Event},
    ownership::Heir,
    queue_rows::{Joining, Leaving, QueueEnd, Withdrawal},
};
use crate::model::{CancelCause, Delivery, MessageId, event::StepPosition};

#[cfg(test)]
mod tests;

/// Selects messages to withdraw.
#[derive(Debug, Clone, Copy)]
pub enum Which<'a> {
    /// All queued messages.
    All,
    /// Those of the given messages that are queued.
    These(&'a [MessageId]),
}

impl Which<'_> {
    fn has(self, message: &MessageId) -> bool {
        match self {
            Self::All => true,
            Self::These(messages) => messages.contains(message),
        }
    }
}

/// Enqueues a message. A message that interrupts also cancels the live turn; if that has no owner, `heir` becomes its
/// owner and ends it. Returns `None` if `most` messages are queued already, or the session is deleted.
pub fn join<'a>(
    session: &Session,
    joining: Joining<'a>,
    most: usize,
    heir: Heir<'_>,
) -> Option<Change<'a>> {
    if session.queue.len() >= most || session.state == SessionState::Deleted {
        return None;
    }
    let interrupts = (joining.delivery == Delivery::Interrupt).then(|| interrupt(session, heir));
    let mut change = interrupts.flatten().unwrap_or_else(|| Change::of(session));
    change.session.queue.push(Waiting {
        message: joining.message.clone(),
        delivery: joining.delivery,
        starts_turn: joining.starts_turn,
        of_execute: joining.execute.is_some(),
        // Computed from the database's time at the commit.
        expires_at: None,
    });
    change.queue.joins = Some(joining);
    Some(change)
}

fn interrupt(session: &Session, heir: Heir<'_>) -> Option<Change<'static>> {
    let request = CancelRequest {
        cause: CancelCause::Interrupted,
        reason: String::new(),
        rollback: false,
    };
    let cancel = Cancel {
        turn: None,
        request: &request,
        replica: heir.replica,
        lease: heir.lease,
    };
    cancel::apply(session, &cancel, None)
}

/// Withdraws queued messages, each with an event with this payload. [`Withdrawal::Expired`] withdraws only expired
/// messages. Returns `None` if none of them is queued.
pub fn withdraw(
    session: &Session,
    which: Which<'_>,
    why: Withdrawal,
    payload: &[u8],
    now: Timestamp,
) -> Option<Change<'static>> {
    let is_due = |waiting: &Waiting| match why {
        Withdrawal::Expired => waiting.expires_at.is_some_and(|at| at < now),
        Withdrawal::Cancelled | Withdrawal::Dropped(_) => true,
    };
    let mut change = Change::of(session);
    let becoming = &mut change.session.queue;
    let gone: Vec<Waiting> = becoming
        .extract_if(.., |waiting| which.has(&waiting.message) && is_due(waiting))
        .collect();
    for Waiting { message, .. } in gone {
        change.queue.leave.push(Leaving {
            message: message.clone(),
            end: QueueEnd::Withdrawn(why),
            event: change.events.len(),
        });
        let event = Event::Withdrawn {
            message,
            why,
            payload: payload.to_vec(),
        };
        change.event_at(StepPosition::default(), event);
    }
    (!change.queue.leave.is_empty()).then_some(change)
}
