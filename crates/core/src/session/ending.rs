//! The end of a turn, written by its owner: `finish` if the model is done, unless messages are queued for the turn or
//! it was cancelled; `stop` in all other cases.

use std::time::Duration;

use super::{
    Session, SessionState,
    answers::OpenCall,
    change::{Change, ClosedBy, ClosedCall, Event, ResultMessage, SyntheticResult},
    cost::StepCost,
    rollback::{self, RollbackTarget},
    rows::Rows,
    steps::{Owner, of_owner},
};
use crate::model::{Ending, Payload, TurnResult};

#[cfg(test)]
mod tests;

/// A turn that ends within this time of its start counts as one use of its session, not two.
const ONE_USE: Duration = Duration::from_secs(10);

/// The end of a turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TurnEnd<'a> {
    pub ending: &'a Ending,
    pub result: &'a TurnResult,
    /// The synthetic result for calls that are still open.
    pub synthetic: SyntheticResult<'a>,
}

/// Writes the last step, and ends the turn if no message is queued for it and no cancel was requested. Returns `None`
/// if calls are open.
pub fn finish<'a>(
    session: &Session,
    rows: &'a Rows,
    cost: &StepCost<'a>,
    end: &TurnEnd<'a>,
    owner: Owner<'_>,
) -> Option<Change<'a>> {
    if session.open_calls > 0 {
        return None;
    }
    let mut change = last_step(session, rows, cost, end, owner);
    if !session.has_messages_for_turn() && session.cancel.is_none() {
        over(&mut change, end);
    }
    Some(change)
}

/// What the end of a turn closes and rolls back.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenWork<'a> {
    /// The open calls.
    pub calls: &'a [OpenCall],
    /// The state to roll back. `None` means the turn's messages are kept.
    pub rollback: Option<&'a RollbackTarget>,
}

/// Writes the last step and ends the turn, regardless of queued messages. Open calls are closed without a result, and
/// the message with their results is committed.
pub fn stop<'a>(
    session: &Session,
    open: OpenWork<'_>,
    rows: &'a Rows,
    cost: &StepCost<'a>,
    end: &TurnEnd<'a>,
    owner: Owner<'_>,
) -> Change<'a> {
    let mut change = last_step(session, rows, cost, end, owner);
    end_turn(&mut change, open.calls, end);
    match end.ending {
        Ending::Completed(_) => {}
        Ending::Failed(_) | Ending::Cancelled { .. } => {
            change.queue.cleared_turn_starts = change.session.clear_turn_starts();
        }
    }
    if let Some(back) = open.rollback {
        rollback::apply(&mut change, back);
    }
    change
}

fn last_step<'a>(
    session: &Session,
    rows: &'a Rows,
    cost: &StepCost<'a>,
    end: &TurnEnd<'a>,
    owner: Owner<'_>,
) -> Change<'a> {
    let mut change = of_owner(session, owner);
    change.add(rows);
    change.account(cost);
    change.turn.step_count = Some(end.result.step_count);
    change.turn.final_message = cost.message;
    change.drops_partial = true;
    change.session.takeovers = 0;
    change
}

/// Closes the open calls, and ends the turn.
pub(super) fn end_turn<'a>(change: &mut Change<'a>, open: &[OpenCall], end: &TurnEnd<'a>) {
    close(change, open, end.synthetic);
    change.session.open_calls = 0;
    over(change, end);
}

fn close<'a>(change: &mut Change<'a>, open: &[OpenCall], synthetic: SyntheticResult<'a>) {
    let step = change.session.step;
    for call in open {
        let event = Event::CallCancelled { call: call.id.clone(), tool: call.tool.clone(), reason: synthetic.reason };
        change.event(step, event);
        change.count_result(synthetic.tokens);
        change.closed.push(ClosedCall {
            call: call.id.clone(),
            closed_by: ClosedBy::Synthetic(synthetic),
            tool: call.tool.clone(),
            position: call.position,
            message: call.results.clone(),
        });
    }
    let Some(first) = open.first() else {
        return;
    };
    let message = ResultMessage { id: first.results.clone(), step: first.step, overhead: synthetic.overhead };
    let at = change.events.len();
    change.event(step, Event::MessageCommitted(first.results.clone()));
    change.message = Some((at, message));
    change.count_message(synthetic.overhead);
}

/// Ends the turn. Its last event lists the messages that are still queued.
fn over<'a>(change: &mut Change<'a>, end: &TurnEnd<'a>) {
    let step = change.session.step;
    let waiting = change.session.waiting();
    let ended = Payload::TurnEnded { ending: end.ending.clone(), result: end.result.clone() };
    let event = Event::TurnEnded { ended: Box::new(ended), waiting };
    change.event(step, event);
    change.turn.end = Some((end.ending, end.result));
    change.is_use = end.result.elapsed >= ONE_USE;
    change.lease = Some(Duration::ZERO);
    let becoming = &mut change.session;
    becoming.state = SessionState::Idle;
    becoming.owner = None;
    becoming.lease_is_over = true;
}
