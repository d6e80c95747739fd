//! Who runs a turn: another replica goes on where a lease ran out or the time of a call is up, and an
//! owner gives its turn back.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Session, SessionState,
    change::{Change, Event},
};
use crate::model::{TurnFence, TurnId};

#[cfg(test)]
mod tests;

/// The replica that is to run a turn, and for how long without a further word of it.
#[derive(Debug, Clone, Copy)]
pub struct Heir<'a> {
    /// Its name.
    pub replica: &'a str,
    /// How long it has the lease.
    pub lease: Duration,
}

/// Takes a turn over that was seen without an owner under `epoch`. `None`: it has one, or moved on. An
/// owner that gave it back did not fail; and where the time of a call is up, nobody did.
pub fn take_over(
    session: &Session,
    epoch: i64,
    heir: Heir<'_>,
    now: Timestamp,
) -> Option<Change<'static>> {
    let is_due = match session.state {
        SessionState::Running => session.lease_is_over,
        SessionState::AwaitingTools => session.wake_at.is_some_and(|at| at < now),
        SessionState::Idle | SessionState::Deleted => false,
    };
    if session.fence.epoch != epoch || !is_due {
        return None;
    }
    let mut change = Change::of(session);
    change.session.give_to(heir.replica);
    change.lease = Some(heir.lease);
    if session.state == SessionState::Running {
        let handed_over = session.owner.is_none();
        change.session.takeovers += u32::from(!handed_over);
        change.session.attempt += 1;
        let takeovers = change.session.takeovers;
        let event = Event::TurnRecovered {
            handed_over,
            takeovers,
        };
        change.event(session.step, event);
    }
    Some(change)
}

/// Gives a turn that a replica runs without knowing it to that replica once more, under another epoch:
/// statements of its that are still under way change nothing then.
pub fn adopt(
    session: &Session,
    turn: &TurnId,
    epoch: i64,
    heir: Heir<'_>,
) -> Option<Change<'static>> {
    runs(session, turn, epoch, heir.replica)?;
    let mut change = Change::of(session);
    change.session.give_to(heir.replica);
    change.lease = Some(heir.lease);
    Some(change)
}

/// Gives a turn back that has come this far, so that any replica may go on at once.
pub fn hand_over(
    session: &Session,
    right: TurnFence<'_>,
    replica: &str,
) -> Option<Change<'static>> {
    if session.fence.op != right.fence.op {
        return None;
    }
    release(session, right.turn, right.fence.epoch, replica)
}

/// The same, however far it has come under its epoch.
pub fn release(
    session: &Session,
    turn: &TurnId,
    epoch: i64,
    replica: &str,
) -> Option<Change<'static>> {
    runs(session, turn, epoch, replica)?;
    let mut change = Change::of(session);
    change.lease = Some(Duration::ZERO);
    let becoming = &mut change.session;
    becoming.owner = None;
    becoming.lease_is_over = true;
    becoming.fence = session.fence.next();
    becoming.written_by = None;
    Some(change)
}

fn runs(session: &Session, turn: &TurnId, epoch: i64, replica: &str) -> Option<()> {
    let is_it = session.live_turn() == Some(turn) && session.fence.epoch == epoch;
    (is_it && session.is_owned_by(replica)).then_some(())
}
