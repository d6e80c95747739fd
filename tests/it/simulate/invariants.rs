//! Invariants of the row after every transaction, and of every decision: those that every check of stored sessions
//! verifies, and those that only a simulation can verify.

use std::collections::BTreeSet;

use contextd::model::{Role, Transcript, transcript::NotClosed};

use super::row::{Ended, Kind, Row};
use crate::harness::invariants::{check, one_answer_per_step};

/// The first violation, as a text that starts with the invariant.
pub(super) fn broken(row: &Row, asked_to_cancel: &BTreeSet<u32>) -> Option<String> {
    let stored = row.stored();
    let mut found = check(&stored).into_iter().chain(one_answer_per_step(&stored));
    found
        .next()
        .map(|violation| violation.to_string())
        .or_else(|| misread(row))
        .or_else(|| wanted(row, asked_to_cancel))
}

/// I4: the transcript type of the model layer has the same open calls as the row.
fn misread(row: &Row) -> Option<String> {
    let open: BTreeSet<_> = match Transcript::new(row.messages.clone()).close() {
        Ok(_) => BTreeSet::new(),
        Err(NotClosed::Open(calls)) => calls.into_iter().collect(),
        Err(NotClosed::Broken(at)) => return Some(format!("I4: broken at message {at}")),
    };
    // Results before the last result of a batch are not in the transcript yet.
    let right = open.is_superset(&row.open) && (!row.open.is_empty() || open.is_empty());
    (!right).then(|| format!("I4: {open:?} are open in the transcript, {:?} in the row", row.open))
}

/// I8: a turn is only cancelled if a cancel was requested, never because a client disconnected.
fn wanted(row: &Row, asked: &BTreeSet<u32>) -> Option<String> {
    let unasked =
        row.events.iter().find(|event| event.kind == Kind::TurnEnded(Ended::Cancelled) && !asked.contains(&event.turn));
    unasked.map(|event| format!("I8: nobody wanted turn {} cancelled", event.turn))
}

/// The violation that a model call at this point would be: I4 if calls are open, I2 if the step already has a response.
pub(super) fn asked_in_vain(row: &Row) -> Option<String> {
    if let Err(error) = Transcript::new(row.messages.clone()).close() {
        return Some(format!("I4: a model is asked: {error}"));
    }
    let turn = row.turn_id();
    let answered = |message: &&contextd::model::Message| {
        message.role == Role::Assistant && message.step == row.step && message.turn.as_ref() == Some(&turn)
    };
    row.messages.iter().find(answered).map(|_| format!("I2: step {} of turn {turn} is asked for again", row.step))
}
