//! The owner's way from one step to the next, and from one attempt at a step to the next. A step is
//! made for one revision of the configuration, and says which.

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

/// How a session stands to an owner that wants to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// It is the owner, and this is its next operation.
    Owner,
    /// This operation of its has landed.
    Landed,
    /// Another owner has the turn, or it is over.
    Gone,
}

/// How a session stands to a replica that owns a turn of it, as far as that replica knows. After a
/// failover that lost commits only the turn and the owner tell one grant from another.
pub fn standing(session: &Session, right: TurnFence<'_>, replica: &str) -> Standing {
    if session.turn.as_ref() != Some(right.turn) {
        return Standing::Gone;
    }
    if session.fence == right.fence && session.is_owned_by(replica) {
        return Standing::Owner;
    }
    let written_here = session.written_by.as_deref() == Some(replica);
    if written_here && session.fence == right.fence.next() {
        Standing::Landed
    } else {
        Standing::Gone
    }
}

/// The owner that writes, and how long it has the lease from then on.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// Its name.
    pub replica: &'a str,
    /// The lease.
    pub lease: Duration,
}

/// A write of the owner's, without anything in it.
pub(super) fn of_owner<'a>(session: &Session, owner: Owner<'_>) -> Change<'a> {
    let mut change = Change::of(session);
    change.session.fence = session.fence.next();
    change.session.written_by = Some(owner.replica.to_owned());
    change.lease = Some(owner.lease);
    change
}

/// A step that is about to begin.
#[derive(Debug, Clone, Copy)]
pub struct NewStep<'a> {
    /// The revision it is made for.
    pub revision: i64,
    /// Begin it also if another revision came in force meanwhile.
    pub in_any_case: bool,
    /// The encoded `step_started`.
    pub started: &'a [u8],
    /// What the size of its prompt has beside that of the transcript.
    pub size_offset: i64,
}

/// Begins the next step. `None`: another revision is in force than the one it is made for.
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

/// Begins the next attempt at the step; the rows are events of the one that failed, and what was shown of
/// it is void. It is no progress: takeovers are not forgotten, or a call that kills its owner would be
/// repeated for ever. The turn goes on with what `fallback` asks for, also under its next owner.
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
