//! Compactions. A replica runs one in parallel with turns, and renews the compaction's lease. The compaction is applied
//! only if the context has not changed since, except for messages added after it. It can be reverted.

use std::time::Duration;

use super::{
    Session, SessionState,
    change::{Change, Event, ModelUsage},
    compaction_rows::{CompactionChange, Cost, Replacement, RunningCompaction},
    counters::TokenCounters,
    rows::Rows,
};
use crate::model::{CompactionId, Payload, StepPosition, UsagePurpose};

#[cfg(test)]
mod tests;

/// An applied compaction: the active one, or one that a newer one builds on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedCompaction {
    pub id: CompactionId,
    /// Its change of the counters.
    pub shift: TokenCounters,
}

/// The start of a compaction.
#[derive(Debug, Clone, Copy)]
pub struct NewCompaction<'a> {
    pub compaction: &'a CompactionId,
    /// The version of the context that it is based on.
    pub seen: i64,
    /// The encoded compaction.
    pub info: &'a [u8],
    /// The event.
    pub started: &'a Payload,
    /// Duration of the first lease.
    pub lease: Duration,
}

/// The failure of a compaction.
#[derive(Debug, Clone, Copy)]
pub struct FailedCompaction<'a> {
    /// Its event, followed by the events that report its calls.
    pub rows: &'a Rows,
    /// The encoded compaction.
    pub info: &'a [u8],
    /// The cost of its model calls.
    pub cost: &'a Cost,
}

/// Starts a compaction. A running one whose lease has expired fails first. Returns `None` if one is running and has its
/// lease, the context has changed since it was read, or the session is deleted.
pub fn begin<'a>(session: &Session, beginning: &NewCompaction<'a>) -> Option<Change<'a>> {
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
    change.session.compaction = Some(RunningCompaction {
        id: beginning.compaction.clone(),
        context_version: session.context_version,
        lease_is_over: false,
    });
    change.append_event(beginning.started, None);
    Some(change)
}

/// Fails the running compaction if its lease has expired. Returns `None` if none is running, it still has its lease, or
/// the session is deleted.
pub fn expire(session: &Session) -> Option<Change<'static>> {
    let running = session.compaction.as_ref();
    let lost = running.filter(|running| running.lease_is_over)?;
    if session.state == SessionState::Deleted {
        return None;
    }
    let mut change = Change::of(session);
    change.session.compaction = None;
    change.compactions.push(CompactionChange::Fails { compaction: lost.id.clone(), info: None });
    let event = Event::CompactionExpired(lost.id.clone());
    change.event_at(StepPosition::default(), event);
    Some(change)
}

/// Fails a compaction. Returns `None` if it is not running.
pub fn fail<'a>(session: &Session, compaction: &CompactionId, given_up: &FailedCompaction<'a>) -> Option<Change<'a>> {
    let mut change = end(session, compaction)?;
    change.compactions.push(CompactionChange::Fails { compaction: compaction.clone(), info: Some(given_up.info) });
    change.add_uncounted(given_up.rows);
    spend(&mut change, given_up.cost);
    Some(change)
}

/// Applies a compaction. Messages may have been added concurrently. Returns `None` if it is not running, or the context
/// has changed in another way since it started.
pub fn swap<'a>(
    session: &Session,
    in_force: Option<&AppliedCompaction>,
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
    change.add_uncounted(replacement.rows);
    change.change_counters(&replacement.shift);
    spend(&mut change, replacement.cost);
    Some(change)
}

/// Reverts the active compaction and its change of the counters. Returns `None` if another one is active, the context
/// has changed since it was read, or the session is deleted.
pub fn revert(
    session: &Session,
    in_force: Option<&AppliedCompaction>,
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
    change.change_counters(&-applied.shift);
    change.append_event(reverted, None);
    change
        .compactions
        .push(CompactionChange::Reverts { compaction: compaction.clone(), at: change.session.last_seq() });
    Some(change)
}

/// Ends the running compaction. Returns `None` if it is not this one.
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
    change.usage =
        (totals.calls > 0).then_some(ModelUsage { purpose: UsagePurpose::Compaction, model: &cost.model, totals });
}
