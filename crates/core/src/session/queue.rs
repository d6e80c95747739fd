//! The queue: messages are enqueued, a message may interrupt the running turn, and queued messages may be withdrawn. A
//! turn does not complete while a message is queued for it.

use jiff::Timestamp;

use super::{
    CancelRequest, QueuedMessage, Session, SessionState,
    cancel::{self, Cancel},
    change::{Change, Event},
    ownership::NewOwner,
    queue_rows::{NewQueuedMessage, QueueEnd, RemovedMessage, Withdrawal},
};
use crate::model::{CancelCause, Delivery, MessageId, event::StepPosition};

#[cfg(test)]
mod tests;

/// Selects messages to withdraw.
#[derive(Debug, Clone, Copy)]
pub enum MessageSelection<'a> {
    /// All queued messages.
    All,
    /// Those of the given messages that are queued.
    These(&'a [MessageId]),
}

impl MessageSelection<'_> {
    fn has(self, message: &MessageId) -> bool {
        match self {
            Self::All => true,
            Self::These(messages) => messages.contains(message),
        }
    }
}

/// Enqueues a message. A message that interrupts also cancels the live turn; if that has no owner, `heir` becomes its
/// owner and ends it. Returns `None` if `most` messages are queued already, or the session is deleted.
pub fn enqueue<'a>(
    session: &Session,
    joining: NewQueuedMessage<'a>,
    most: usize,
    heir: NewOwner<'_>,
) -> Option<Change<'a>> {
    if session.queue.len() >= most || session.state == SessionState::Deleted {
        return None;
    }
    let interrupts = (joining.delivery == Delivery::Interrupt).then(|| interrupt(session, heir));
    let mut change = interrupts.flatten().unwrap_or_else(|| Change::of(session));
    change.session.queue.push(QueuedMessage {
        message: joining.message.clone(),
        delivery: joining.delivery,
        starts_turn: joining.starts_turn,
        of_execute: joining.execute.is_some(),
        // Computed from the database's time at the commit.
        expires_at: None,
    });
    change.queue.added = Some(joining);
    Some(change)
}

fn interrupt(session: &Session, heir: NewOwner<'_>) -> Option<Change<'static>> {
    let request = CancelRequest { cause: CancelCause::Interrupted, reason: String::new(), rollback: false };
    let cancel = Cancel { turn: None, request: &request, replica: heir.replica, lease: heir.lease };
    cancel::apply(session, &cancel, None)
}

/// Withdraws queued messages, each with an event with this payload. [`Withdrawal::Expired`] withdraws only expired
/// messages. Returns `None` if none of them is queued.
pub fn withdraw(
    session: &Session,
    which: MessageSelection<'_>,
    why: Withdrawal,
    payload: &[u8],
    now: Timestamp,
) -> Option<Change<'static>> {
    let is_due = |waiting: &QueuedMessage| match why {
        Withdrawal::Expired => waiting.expires_at.is_some_and(|at| at < now),
        Withdrawal::Cancelled | Withdrawal::Dropped(_) => true,
    };
    let mut change = Change::of(session);
    let becoming = &mut change.session.queue;
    let gone: Vec<QueuedMessage> =
        becoming.extract_if(.., |waiting| which.has(&waiting.message) && is_due(waiting)).collect();
    for QueuedMessage { message, .. } in gone {
        change.queue.removed.push(RemovedMessage {
            message: message.clone(),
            end: QueueEnd::Withdrawn(why),
            event: change.events.len(),
        });
        let event = Event::Withdrawn { message, why, payload: payload.to_vec() };
        change.event_at(StepPosition::default(), event);
    }
    (!change.queue.removed.is_empty()).then_some(change)
}
