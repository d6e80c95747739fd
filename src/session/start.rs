//! A turn begins in an idle session: for its own input, for a message that waits, or to go on from the
//! transcript.

use std::time::Duration;

use super::{
    Session, SessionState,
    change::{Change, TurnRow},
    ownership::Heir,
    rows::Rows,
};
use crate::model::{MessageId, Payload, TurnId};

#[cfg(test)]
mod tests;

/// A turn that is about to begin.
#[derive(Debug, Clone, Copy)]
pub struct NewTurn<'a> {
    /// Its id.
    pub turn: &'a TurnId,
    /// Its first events and its input.
    pub rows: &'a Rows,
    /// How long it may take.
    pub timeout: Duration,
    /// The revision that its first step was made for.
    pub revision: i64,
    /// What its row says.
    pub row: TurnRow<'a>,
}

/// What a turn begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Opening {
    /// Its own input, among its rows.
    Input,
    /// The transcript as it is: its last word is not the model's.
    Question,
    /// The transcript as it is, which ends with the model's answer: the model has something to answer only if
    /// messages wait.
    Answered,
}

/// Begins a turn in an idle session. `None`: it is not idle, its configuration has changed, or there is
/// nothing to answer.
pub fn admit<'a>(
    session: &Session,
    new: &NewTurn<'a>,
    opening: Opening,
    heir: Heir<'_>,
) -> Option<Change<'a>> {
    let asks = match opening {
        Opening::Input | Opening::Question => true,
        Opening::Answered => !session.queue.is_empty(),
    };
    if asks {
        begin(session, new, heir)
    } else {
        None
    }
}

/// The same for a message that waits and starts a turn. The turn begins before its first step, which
/// begins when the message is taken.
pub fn start_for<'a>(
    session: &Session,
    message: &MessageId,
    new: &NewTurn<'a>,
    heir: Heir<'_>,
) -> Option<Change<'a>> {
    let mut starting = session.queue.iter().filter(|waiting| waiting.starts_turn);
    let waits = starting.any(|waiting| waiting.message == *message);
    if waits {
        begin(session, new, heir)
    } else {
        None
    }
}

fn begin<'a>(session: &Session, new: &NewTurn<'a>, heir: Heir<'_>) -> Option<Change<'a>> {
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
    change.queue.hurried = change.session.hurry();
    change.lease = Some(heir.lease);
    change.turn_ends_within = Some(new.timeout);
    change.about = Some(new.turn.clone());
    change.begins = Some(new.row);
    change.is_use = true;
    change.add(new.rows);
    Some(change)
}
