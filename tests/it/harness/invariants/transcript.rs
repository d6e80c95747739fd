//! I4: the transcript is closed or ends in one batch of open calls. Every call has one result, and no message is
//! between calls and their results.

use std::collections::{BTreeMap, BTreeSet};

use super::{Invariant, Message, Stored, Violation};

pub(super) fn i4(session: &Stored) -> Vec<Violation> {
    [calls(session), requests(session), batches(session)].concat()
}

fn violation(name: &'static str, detail: String) -> Violation {
    Violation::new(Invariant::I4, name, detail)
}

/// Each closed call has one result with its event; no call is open after the end of its turn; and the number of open
/// calls is correct.
fn calls(session: &Stored) -> Vec<Violation> {
    let mut found = Vec::new();
    let live = if session.state.is_live() { session.turn.as_str() } else { "" };
    let results = tally(session.parts.iter().filter(|part| part.kind == "tool_result").map(|part| part.call.as_str()));
    let ends = tally(
        session
            .events
            .iter()
            .filter(|event| matches!(event.kind.as_str(), "tool_call_completed" | "tool_call_cancelled"))
            .filter_map(|event| event.refs.first().map(String::as_str)),
    );
    for call in &session.calls {
        let id = &call.id;
        let closed = call.is_closed();
        let of = |tally: &BTreeMap<&str, usize>| tally.get(id.as_str()).copied().unwrap_or(0);
        if of(&results) != usize::from(closed) {
            let detail = format!("call {id} in status {} has {}", call.status, of(&results));
            found.push(violation("results", detail));
        }
        if !closed && call.turn != live {
            let detail = format!("{id} of turn {:?}, which is not live", call.turn);
            found.push(violation("open call", detail));
        }
        // Calls in a fork and imported calls have no events.
        let its_own = session.forked_at == 0 && !call.turn.is_empty();
        if of(&ends) != usize::from(closed) && (its_own || of(&ends) > 0) {
            let detail = format!("call {id} in status {} has {} ends", call.status, of(&ends));
            found.push(violation("results", detail));
        }
    }
    let open = session.calls.iter().filter(|call| !call.is_closed()).count();
    if usize::try_from(session.open_calls) != Ok(open) {
        let detail = format!("{open} calls are open, {} are counted", session.open_calls);
        found.push(violation("recount", detail));
    }
    found
}

fn tally<'a>(ids: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut tally = BTreeMap::new();
    ids.for_each(|id| *tally.entry(id).or_default() += 1);
    tally
}

/// A call is requested once.
fn requests(session: &Stored) -> Vec<Violation> {
    let mut requested = BTreeSet::new();
    session
        .events
        .iter()
        .filter(|event| event.kind == "tool_call_requested")
        .filter(|event| !requested.insert(event.refs.first()))
        .map(|event| {
            let detail = format!("for call {:?} at seq {}", event.refs, event.seq);
            violation("asked twice", detail)
        })
        .collect()
}

/// A message with calls is followed directly by their results.
fn batches(session: &Stored) -> Vec<Violation> {
    let mut found = Vec::new();
    let said: Vec<&Message> = session.messages.iter().filter(|message| !message.summary && !message.voided).collect();
    let called = calls_by_message(session, "tool_call");
    let answered = calls_by_message(session, "tool_result");
    let none = BTreeSet::new();
    let mut before = &none;
    for (n, message) in said.iter().enumerate() {
        if message.role == 4 && before.is_empty() {
            let detail = format!("results {} without calls", message.id);
            found.push(violation("batch", detail));
        }
        let made = called.get(message.id.as_str()).unwrap_or(&none);
        before = made;
        if made.is_empty() {
            continue;
        }
        match said.get(n + 1) {
            Some(next) if next.role != 4 || answered.get(next.id.as_str()) != Some(made) => {
                let detail = format!("message {} at seq {} follows calls", next.id, next.seq);
                found.push(violation("batch", detail));
            }
            None if session.open_calls == 0 => {
                let detail = format!("the calls of {} have no results", message.id);
                found.push(violation("batch", detail));
            }
            Some(_) | None => {}
        }
    }
    found
}

/// The calls of the parts of a kind, by message.
fn calls_by_message<'a>(session: &'a Stored, kind: &str) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for part in session.parts.iter().filter(|part| part.kind == kind) {
        named.entry(&part.message).or_default().insert(&part.call);
    }
    named
}

/// A step has one assistant message, regardless of who called the model. The turn engine adds this rule to I4; the
/// protocol run, which has no engine, writes several.
pub fn one_answer_per_step(session: &Stored) -> Vec<Violation> {
    let mut answered = BTreeSet::new();
    session
        .messages
        .iter()
        .filter(|message| message.role == 3 && !message.turn.is_empty())
        .filter(|message| !answered.insert((&message.turn, message.step)))
        .map(|message| {
            let Message { id, turn, step, .. } = message;
            let detail = format!("{id} is another answer of step {step} of turn {turn}");
            violation("two answers", detail)
        })
        .collect()
}
