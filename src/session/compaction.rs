//! Compactions: made aside while turns go on, put in force if the context is still the one that they were made
//! from, and taken back. A compaction that is being made has a lease of its own.

use std::time::Duration;

use super::{
    Session, SessionState,
    change::{Change, Event, Spent},
    compaction_rows::{CompactionChange, Cost, Replacement, Running},
    counters::Shift,
    rows::Rows,
};
use crate::model::{CompactionId, Payload, StepPosition, UsagePurpose};

#[cfg(test)]
mod tests;

/// A compaction in force, or one that a newer one builds on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its id.
    pub id: CompactionId,
    /// What it changed in the counters.
    pub shift: Shift,
}

/// What a compaction is begun with.
#[derive(Debug, Clone, Copy)]
pub struct Beginning<'a> {
    /// Its id.
    pub compaction: &'a CompactionId,
    /// The version of the context that it is made from.
    pub seen: i64,
    /// The encoded compaction.
    pub info: &'a [u8],
    /// The event.
    pub started: &'a Payload,
    /// For how long it has its lease.
    pub lease: Duration,
}

/// A compaction that is given up.
#[derive(Debug, Clone, Copy)]
pub struct GivenUp<'a> {
    /// Its event first, then how its calls are reported.
    pub rows: &'a Rows,
    /// The encoded compaction.
    pub info: &'a [u8],
    /// What was spent on it.
    pub cost: &'a Cost,
}

/// Begins a compaction. One that nobody makes any more is given up first. `None`: another one is being made,
/// the context is another one than it is to be made from, or the session is deleted.
pub fn begin<'a>(session: &Session, beginning: &Beginning<'a>) -> Option<Change<'a>> {
    let is_seen = session.context_version == beginning.seen;
    if session.state == SessionState::Deleted || !is_seen {
        return None;
    }
    let mut change = match &session.compaction {
        Some(running) if !running.lease_is_over => return None,
        Some(_) => expire(session)?,
        None => Change::of(session),
    };
    change.compactions.push(CompactionChange::Begins {
        compaction: beginning.compaction,
        info: beginning.info,
        lease: beginning.lease,
    });
    change.session.compaction = Some(Running {
        id: beginning.compaction.clone(),
        context_version: session.context_version,
        lease_is_over: false,
    });
    change.tell(beginning.started, None);
    Some(change)
}

/// Gives up the compaction that nobody makes any more. `None`: there is no such compaction.
pub fn expire(session: &Session) -> Option<Change<'static>> {
    let running = session.compaction.as_ref();
    let lost = running.filter(|running| running.lease_is_over)?;
    if session.state == SessionState::Deleted {
        return None;
    }
    let mut change = Change::of(session);
    change.session.compaction = None;
    change.compactions.push(CompactionChange::Fails {
        compaction: lost.id.clone(),
        info: None,
    });
    let event = Event::CompactionLost(lost.id.clone());
    change.event_at(StepPosition::default(), event);
    Some(change)
}

/// Gives a compaction up. `None`: it is not being made.
pub fn fail<'a>(
    session: &Session,
    compaction: &CompactionId,
    given_up: &GivenUp<'a>,
) -> Option<Change<'a>> {
    let mut change = end(session, compaction)?;
    change.compactions.push(CompactionChange::Fails {
        compaction: compaction.clone(),
        info: Some(given_up.info),
    });
    change.tell_rows(given_up.rows);
    spend(&mut change, given_up.cost);
    Some(change)
}

/// Puts a compaction in force. Messages that were added meanwhile are no hindrance. `None`: it is not being
/// made, or the context is another one than it was made from.
pub fn swap<'a>(
    session: &Session,
    in_force: Option<&Applied>,
    compaction: &CompactionId,
    replacement: &Replacement<'a>,
) -> Option<Change<'a>> {
    let mut change = end(session, compaction)?;
    let made_from = session.compaction.as_ref()?.context_version;
    if session.context_version != made_from {
        return None;
    }
    change.session.context_version += 1;
    change.compactions.push(CompactionChange::Applies {
        compaction: compaction.clone(),
        predecessor: in_force.map(|applied| applied.id.clone()),
        replacement: *replacement,
    });
    change.tell_rows(replacement.rows);
    change.shift_by(&replacement.shift);
    spend(&mut change, replacement.cost);
    Some(change)
}

/// Takes the compaction in force back, and what it changed in the counters with it. `None`: another one is in
/// force, the context is another one than was seen, or the session is deleted.
pub fn revert(
    session: &Session,
    in_force: Option<&Applied>,
    compaction: &CompactionId,
    seen: i64,
    reverted: &Payload,
) -> Option<Change<'static>> {
    let applied = in_force.filter(|applied| applied.id == *compaction)?;
    if session.state == SessionState::Deleted || session.context_version != seen {
        return None;
    }
    let mut change = Change::of(session);
    change.session.context_version += 1;
    change.shift_by(&-applied.shift);
    change.tell(reverted, None);
    change.compactions.push(CompactionChange::Reverts {
        compaction: compaction.clone(),
        at: change.session.last_seq(),
    });
    Some(change)
}

/// A change in which the compaction that is being made ends. `None`: it is not this one.
fn end(session: &Session, compaction: &CompactionId) -> Option<Change<'static>> {
    let running = session.compaction.as_ref()?;
    if session.state == SessionState::Deleted || running.id != *compaction {
        return None;
    }
    let mut change = Change::of(session);
    change.session.compaction = None;
    Some(change)
}

fn spend<'a>(change: &mut Change<'a>, cost: &'a Cost) {
    let totals = cost.totals();
    change.spent = (totals.calls > 0).then_some(Spent {
        purpose: UsagePurpose::Compaction,
        model: &cost.model,
        totals,
    });
}
