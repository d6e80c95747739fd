//! Cancels. The owner of a running turn is notified. If the turn has no owner, the replica that handles the cancel
//! becomes its owner and stops it.

use std::time::Duration;

use super::{CancelRequest, Session, change::Change};
use crate::model::TurnId;

#[cfg(test)]
mod tests;

/// A request to cancel a turn.
#[derive(Debug, Clone, Copy)]
pub struct Cancel<'a> {
    /// `None` means the live turn.
    pub turn: Option<&'a TurnId>,
    /// The reason, and whether to roll back.
    pub request: &'a CancelRequest,
    /// The replica that handles the request; it may become the turn's owner.
    pub replica: &'a str,
    /// Duration of the owner's lease.
    pub lease: Duration,
}

/// The earlier outcome of a repeated request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EarlierCancel {
    /// It applied to this turn, or no turn was live.
    AppliedTo(Option<TurnId>),
    /// Its idempotency key belongs to another request.
    Other,
}

/// Cancels the live turn. Returns `None` if no turn is live, or not the given one. A repeated request applies only to
/// the turn of the first request. The first cancel determines the reason; a later one may still request a rollback.
pub fn apply(session: &Session, cancel: &Cancel<'_>, before: Option<&EarlierCancel>) -> Option<Change<'static>> {
    let live = session.live_turn()?;
    let means = cancel.turn.is_none_or(|turn| turn == live);
    let reached = match before {
        None => true,
        Some(EarlierCancel::AppliedTo(turn)) => turn.as_ref() == Some(live),
        Some(EarlierCancel::Other) => false,
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
