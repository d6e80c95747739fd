//! Ownership of a turn: another replica takes it over after its lease has expired or a call has timed out, and an owner
//! releases it.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Session, SessionState,
    change::{Change, Event},
};
use crate::model::{TurnFence, TurnId};

#[cfg(test)]
mod tests;

/// The replica that is to own a turn, and the duration of its lease.
#[derive(Debug, Clone, Copy)]
pub struct NewOwner<'a> {
    pub replica: &'a str,
    /// Time until the lease expires if it is not renewed.
    pub lease: Duration,
}

/// Takes over a turn that was read without an owner under `epoch`. Returns `None` if it has an owner now, or its epoch
/// has changed. Only a takeover from an owner whose lease expired counts as a failure; a released turn or a timed-out
/// call does not.
pub fn take_over(session: &Session, epoch: i64, heir: NewOwner<'_>, now: Timestamp) -> Option<Change<'static>> {
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
        let event = Event::TurnRecovered { handed_over, takeovers };
        change.event(session.step, event);
    }
    Some(change)
}

/// Gives a turn again to the replica that the row names as its owner but that does not know it. The new epoch
/// invalidates statements of that replica that are still in progress.
pub fn adopt(session: &Session, turn: &TurnId, epoch: i64, heir: NewOwner<'_>) -> Option<Change<'static>> {
    runs(session, turn, epoch, heir.replica)?;
    let mut change = Change::of(session);
    change.session.give_to(heir.replica);
    change.lease = Some(heir.lease);
    Some(change)
}

/// Takes over a turn from the same replica after its task ended by a bug. This counts as a failure like a crashed
/// owner, so that a turn which crashes each of its owners ends eventually.
pub fn repeat(
    session: &Session,
    turn: &TurnId,
    epoch: i64,
    heir: NewOwner<'_>,
    now: Timestamp,
) -> Option<Change<'static>> {
    runs(session, turn, epoch, heir.replica)?;
    let left = Session { lease_is_over: true, ..session.clone() };
    take_over(&left, epoch, heir, now)
}

/// Releases a turn at this position, so that any replica can take it over immediately.
pub fn hand_over(session: &Session, right: TurnFence<'_>, replica: &str) -> Option<Change<'static>> {
    if session.fence.op != right.fence.op {
        return None;
    }
    release(session, right.turn, right.fence.epoch, replica)
}

/// Like [`hand_over`], whatever its position under the epoch.
pub fn release(session: &Session, turn: &TurnId, epoch: i64, replica: &str) -> Option<Change<'static>> {
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
