//! What must hold of the row after every single transaction, and of every decision.

use std::collections::{BTreeMap, BTreeSet};

use contextd::model::{Role, Transcript, transcript::NotClosed};

use super::row::{Ended, Kind, Row, State};

/// What does not hold, in words that begin with the invariant.
pub(super) fn broken(row: &Row, asked_to_cancel: &BTreeSet<u32>) -> Option<String> {
    numbered(row)
        .or_else(|| closed(row))
        .or_else(|| ended(row))
        .or_else(|| wanted(row, asked_to_cancel))
}

/// I1: events are numbered without gaps, by owners one after the other, and with what they tell of.
fn numbered(row: &Row) -> Option<String> {
    let mut epoch = 0;
    for (n, event) in (1..).zip(&row.events) {
        if event.seq != n || event.epoch < epoch {
            return Some(format!("I1: {event:?} is number {n}, behind epoch {epoch}"));
        }
        epoch = event.epoch;
    }
    let told: Vec<_> = row
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            Kind::Committed(id) => Some((event.seq, id)),
            _ => None,
        })
        .collect();
    let there: Vec<_> = row
        .messages
        .iter()
        .map(|message| (message.seq.0, &message.id))
        .collect();
    (told != there).then(|| format!("I1: {told:?} are told, {there:?} are there"))
}

/// I4: the transcript is closed or ends in the calls that are open, and each step has one answer.
fn closed(row: &Row) -> Option<String> {
    let open: BTreeSet<_> = match Transcript::new(row.messages.clone()).close() {
        Ok(_) => BTreeSet::new(),
        Err(NotClosed::Open(calls)) => calls.into_iter().collect(),
        Err(NotClosed::Broken(at)) => return Some(format!("I4: broken at message {at}")),
    };
    // Results that came before the last one are not in the transcript yet.
    if !open.is_superset(&row.open) || (row.open.is_empty() && !open.is_empty()) {
        return Some(format!(
            "I4: {open:?} are open in the transcript, {:?} in the row",
            row.open
        ));
    }
    let mut answers = BTreeSet::new();
    let twice = row
        .messages
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .find(|message| !answers.insert((message.turn.clone(), message.step)));
    twice.map(|message| {
        format!(
            "I4: two answers of step {} of turn {:?}",
            message.step, message.turn
        )
    })
}

/// I9: a turn ends once, and nothing of it follows.
fn ended(row: &Row) -> Option<String> {
    let mut over: BTreeMap<u32, Ended> = BTreeMap::new();
    for event in &row.events {
        if let Some(how) = over.get(&event.turn) {
            return Some(format!(
                "I9: {event:?} follows the end of its turn: {how:?}"
            ));
        }
        if let Kind::TurnEnded(how) = event.kind {
            over.insert(event.turn, how);
        }
    }
    let live = row.turn > 0 && !over.contains_key(&row.turn);
    (live == (row.state == State::Idle))
        .then(|| format!("I9: turn {} is live: {live}, in {:?}", row.turn, row.state))
}

/// I8: a turn is cancelled if somebody asked for it, never because a client went away.
fn wanted(row: &Row, asked: &BTreeSet<u32>) -> Option<String> {
    let unasked = row.events.iter().find(|event| {
        event.kind == Kind::TurnEnded(Ended::Cancelled) && !asked.contains(&event.turn)
    });
    unasked.map(|event| format!("I8: nobody wanted turn {} cancelled", event.turn))
}

/// What is wrong with calling the model now: I4, calls are open; or its answer is there already.
pub(super) fn asked_in_vain(row: &Row) -> Option<String> {
    if let Err(error) = Transcript::new(row.messages.clone()).close() {
        return Some(format!("I4: a model is asked: {error}"));
    }
    let turn = row.turn_id();
    let answered = |message: &&contextd::model::Message| {
        message.role == Role::Assistant
            && message.step == row.step
            && message.turn.as_ref() == Some(&turn)
    };
    row.messages
        .iter()
        .find(answered)
        .map(|_| format!("I2: step {} of turn {turn} is asked for again", row.step))
}
