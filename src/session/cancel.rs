//! Cancels: a turn that somebody runs is told to stop; of one that nobody runs, who cancels becomes the
//! owner, and stops it.

use std::time::Duration;

use super::{CancelRequest, Session, change::Change};
use crate::model::TurnId;

#[cfg(test)]
mod tests;

/// A wish that a turn ends.
#[derive(Debug, Clone, Copy)]
pub struct Cancel<'a> {
    /// The turn. `None` means whichever is live.
    pub turn: Option<&'a TurnId>,
    /// Why, and what becomes of its messages.
    pub request: &'a CancelRequest,
    /// The replica that asks, and would be the turn's owner.
    pub replica: &'a str,
    /// How long an owner has the lease.
    pub lease: Duration,
}

/// What a request that is repeated led to when it came first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// It reached this turn, or none was live.
    Reached(Option<TurnId>),
    /// Its idempotency key is another request's.
    Other,
}

/// Cancels the live turn. `None`: there is none, or not the one that is meant. A request that is
/// repeated reaches the turn that it reached first, and no other. The first cancel says why; a later
/// one may still take the messages back.
pub fn apply(
    session: &Session,
    cancel: &Cancel<'_>,
    before: Option<&Before>,
) -> Option<Change<'static>> {
    let live = session.live_turn()?;
    let means = cancel.turn.is_none_or(|turn| turn == live);
    let reached = match before {
        None => true,
        Some(Before::Reached(turn)) => turn.as_ref() == Some(live),
        Some(Before::Other) => false,
    };
    if !means || !reached {
        return None;
    }
    let mut change = Change::of(session);
    let becoming = &mut change.session;
    match &mut becoming.cancel {
        Some(first) => first.rollback |= cancel.request.rollback,
        none => *none = Some(cancel.request.clone()),
    }
    if session.is_ownerless() {
        becoming.give_to(cancel.replica);
        change.lease = Some(cancel.lease);
    }
    Some(change)
}
