//! The end of a step: the response with its calls, its cost and its measured size. If calls are open, the turn waits
//! and has no owner.

use std::time::Duration;

use super::{
    Session, SessionState,
    change::Change,
    cost::StepCost,
    new_calls::Batch,
    rows::Rows,
    steps::{Owner, of_owner},
};
#[cfg(test)]
mod tests;

/// Appends rows and calls, and records their cost. If calls are open, the turn waits and the lease ends, unless a
/// cancel was requested. A completed step is progress, so the count of takeovers is reset.
pub fn apply<'a>(
    session: &Session,
    rows: &'a Rows,
    cost: &StepCost<'a>,
    batch: Option<&'a Batch>,
    owner: Owner<'_>,
) -> Change<'a> {
    let mut change = of_owner(session, owner);
    change.add(rows);
    change.account(cost);
    change.turn.step_count = Some(session.step);
    change.turn.final_message = cost.message;
    change.batch = batch;
    change.drops_partial = true;
    let becoming = &mut change.session;
    becoming.takeovers = 0;
    let opened = batch.map_or(0, Batch::open);
    becoming.open_calls += opened;
    if opened > 0 {
        becoming.wake_at = session.turn_deadline;
        change.wake_within = batch.and_then(Batch::first_timeout);
    }
    if session.cancel.is_none() && becoming.open_calls > 0 {
        becoming.state = SessionState::AwaitingTools;
        becoming.owner = None;
        becoming.lease_is_over = true;
        change.lease = Some(Duration::ZERO);
    }
    change
}
