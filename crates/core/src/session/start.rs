//! Starts a turn in an idle session: with its own input, for a queued message, or from the existing transcript.

use std::time::Duration;

use super::{
    Session, SessionState,
    change::{Change, TurnRow},
    ownership::NewOwner,
    rows::Rows,
};
use crate::model::{MessageId, Payload, TurnId};

#[cfg(test)]
mod tests;

/// A turn that is to start.
#[derive(Debug, Clone, Copy)]
pub struct NewTurn<'a> {
    pub turn: &'a TurnId,
    /// Its first events and its input.
    pub rows: &'a Rows,
    /// Timeout of the turn.
    pub timeout: Duration,
    /// The revision that its first step was prepared for.
    pub revision: i64,
    pub row: TurnRow<'a>,
}

/// What a turn starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StartFrom {
    /// Its own input, which is in its rows.
    Input,
    /// The existing transcript, which does not end with a response of the model.
    Question,
    /// The existing transcript, which ends with a response of the model: there is something to respond to only if
    /// messages are queued.
    Answered,
}

/// Starts a turn in an idle session. Returns `None` if the session is not idle, its configuration has changed, or there
/// is nothing to respond to.
pub fn admit<'a>(session: &Session, new: &NewTurn<'a>, opening: StartFrom, heir: NewOwner<'_>) -> Option<Change<'a>> {
    let asks = match opening {
        StartFrom::Input | StartFrom::Question => true,
        StartFrom::Answered => !session.queue.is_empty(),
    };
    if asks { begin(session, new, heir) } else { None }
}

/// Starts a turn for a queued message that starts turns. The first step begins when the message is taken. Returns
/// `None` if no such message is queued, the session is not idle, or its configuration has changed.
pub fn start_for<'a>(
    session: &Session,
    message: &MessageId,
    new: &NewTurn<'a>,
    heir: NewOwner<'_>,
) -> Option<Change<'a>> {
    let mut starting = session.queue.iter().filter(|waiting| waiting.starts_turn);
    let waits = starting.any(|waiting| waiting.message == *message);
    if waits { begin(session, new, heir) } else { None }
}

fn begin<'a>(session: &Session, new: &NewTurn<'a>, heir: NewOwner<'_>) -> Option<Change<'a>> {
    let is_idle = session.state == SessionState::Idle && session.open_calls == 0;
    if !is_idle || session.revision != new.revision {
        return None;
    }
    let mut change = Change::of(session);
    let begins_step = |(_, event): &(_, Payload)| matches!(event, Payload::StepStarted(_));
    let first = u32::from(new.rows.events.iter().any(begins_step));
    let becoming = &mut change.session;
    becoming.give_to(heir.replica);
    becoming.takeovers = 0;
    becoming.cancel = None;
    becoming.turn = Some(new.turn.clone());
    becoming.step = first;
    becoming.attempt = first;
    becoming.wake_at = None;
    change.queue.promoted_to_asap = change.session.promote_to_asap();
    change.lease = Some(heir.lease);
    change.turn_ends_within = Some(new.timeout);
    change.turn_id = Some(new.turn.clone());
    change.begins = Some(new.row);
    change.is_use = true;
    change.add(new.rows);
    Some(change)
}
