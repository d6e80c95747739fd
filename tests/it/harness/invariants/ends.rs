//! I9: a turn ends once, with one event, and its end never changes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Event, Invariant, Stored, Turn, Violation};

const ENDS: [&str; 3] = ["turn_completed", "turn_cancelled", "turn_failed"];

pub(super) fn i9(session: &Stored) -> Vec<Violation> {
    let mut events: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in session.events.iter().filter(|event| !event.turn.is_empty()) {
        events.entry(&event.turn).or_default().push(event);
    }
    let none = Vec::new();
    let mut found = Vec::new();
    for turn in &session.turns {
        let live = session.state.is_live() && session.turn == turn.id;
        let of = events.get(turn.id.as_str()).unwrap_or(&none);
        found.extend(ended(turn, live, of));
    }
    let known: BTreeSet<&str> = session.turns.iter().map(|turn| turn.id.as_str()).collect();
    let strange = events.keys().filter(|turn| !known.contains(*turn));
    found.extend(strange.map(|turn| {
        let detail = format!("there are events of turn {turn}, which there is not");
        violation("begin", detail)
    }));
    if session.state.is_live() && !known.contains(session.turn.as_str()) {
        let detail = format!("turn {} is live, and there is none", session.turn);
        found.push(violation("begin", detail));
    }
    found
}

fn violation(name: &'static str, detail: String) -> Violation {
    Violation::new(Invariant::I9, name, detail)
}

/// A turn that ended has one terminal event, which is its last event. Only the live turn has none.
fn ended(turn: &Turn, live: bool, events: &[&Event]) -> Vec<Violation> {
    let Turn { id, last_seq, .. } = turn;
    let mut found = Vec::new();
    let ends: Vec<i64> =
        events.iter().filter(|event| ENDS.contains(&event.kind.as_str())).map(|event| event.seq).collect();
    let expected: &[i64] = if live { &[] } else { std::slice::from_ref(last_seq) };
    if ends != expected {
        let detail = format!("turn {id} has {ends:?}, expected {expected:?}");
        found.push(violation("ends", detail));
    }
    if live != turn.live {
        let detail = format!("turn {id} is live: {}, in the run: {live}", turn.live);
        found.push(violation("ends", detail));
    }
    if let (Some(last), Some(end)) = (events.last(), ends.first())
        && last.seq > *end
    {
        let detail = format!("{} at seq {} of turn {id}", last.kind, last.seq);
        found.push(violation("after the end", detail));
    }
    if events.first().is_some_and(|first| first.seq != turn.first_seq || first.kind != "turn_started") {
        let detail = format!("turn {id} does not begin with turn_started at {}", turn.first_seq);
        found.push(violation("begin", detail));
    }
    found
}
