//! The owner's writes from one step to the next, and from one attempt at a step to the next. A step uses one revision
//! of the configuration, which is recorded in its event.

use std::time::Duration;

use super::{
    Session,
    change::{Change, Event},
    cost::StepCost,
    rows::Rows,
};
use crate::model::{TurnFence, command::TurnRequest};

#[cfg(test)]
mod tests;

/// The relation of a session to an owner that is about to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerStatus {
    /// It is the owner, and this is its next operation.
    Owner,
    /// This operation was already committed.
    AlreadyCommitted,
    /// The turn has another owner, or has ended.
    NotOwner,
}

/// Determines the relation of a session to a replica that believes it owns the turn. After a failover that lost
/// commits, only the turn and the owner distinguish two grants of the same fence.
pub fn owner_status(session: &Session, right: TurnFence<'_>, replica: &str) -> OwnerStatus {
    if session.turn.as_ref() != Some(right.turn) {
        return OwnerStatus::NotOwner;
    }
    if session.fence == right.fence && session.is_owned_by(replica) {
        return OwnerStatus::Owner;
    }
    let written_here = session.written_by.as_deref() == Some(replica);
    if written_here && session.fence == right.fence.next() {
        OwnerStatus::AlreadyCommitted
    } else {
        OwnerStatus::NotOwner
    }
}

/// The owner that writes, and the duration of its lease from then on.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    pub replica: &'a str,
    pub lease: Duration,
}

/// An owner's write without any effect yet.
pub(super) fn of_owner<'a>(session: &Session, owner: Owner<'_>) -> Change<'a> {
    let mut change = Change::of(session);
    change.session.fence = session.fence.next();
    change.session.written_by = Some(owner.replica.to_owned());
    change.lease = Some(owner.lease);
    change
}

/// A step that is to begin.
#[derive(Debug, Clone, Copy)]
pub struct NewStep<'a> {
    /// The revision that it was prepared for.
    pub revision: i64,
    /// Begin the step even if the revision has changed since.
    pub in_any_case: bool,
    /// The encoded `step_started`.
    pub started: &'a [u8],
    /// Size of its prompt in addition to the transcript, in tokens.
    pub size_offset: i64,
}

/// Begins the next step. Returns `None` if the current revision is not the one that the step was prepared for.
pub fn begin(session: &Session, step: &NewStep<'_>, owner: Owner<'_>) -> Option<Change<'static>> {
    if session.revision != step.revision && !step.in_any_case {
        return None;
    }
    let mut change = of_owner(session, owner);
    change.turn.step_count = Some(session.step);
    let becoming = &mut change.session;
    becoming.step += 1;
    becoming.attempt = 1;
    becoming.takeovers = 0;
    let event = Event::StepStarted {
        revision: step.revision,
        prompt_tokens: session.context_tokens() + step.size_offset,
        started: step.started.to_vec(),
    };
    change.event(session.step + 1, event);
    Some(change)
}

/// Begins the next attempt at the step. The rows are events of the failed attempt, whose partial content is void. This
/// is not progress: the count of takeovers is not reset, or else a call that crashes its owner would be retried
/// forever. The turn continues with the request `fallback`, also under later owners.
pub fn retry<'a>(
    session: &Session,
    rows: &'a Rows,
    cost: &StepCost<'a>,
    fallback: Option<&'a TurnRequest>,
    owner: Owner<'_>,
) -> Change<'a> {
    let mut change = of_owner(session, owner);
    change.session.attempt += 1;
    change.add(rows);
    change.spend(cost);
    change.turn.request = fallback;
    change.drops_partial = true;
    change
}
