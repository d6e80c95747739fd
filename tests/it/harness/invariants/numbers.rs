//! I1: events are numbered without gaps and committed with the change that they describe.

use std::collections::{BTreeMap, BTreeSet};

use super::{Event, Invariant, Stored, Violation};

pub(super) fn i1(session: &Stored) -> Vec<Violation> {
    [gaps(session), unrecorded(session), missing(session), models(session)].concat()
}

/// A turn that continued with another model calls that model, regardless of its current owner.
fn models(session: &Stored) -> Vec<Violation> {
    let fallbacks = session.events.iter().filter(|event| event.kind == "model_fallback");
    let newest: BTreeMap<&str, &Event> = fallbacks.map(|event| (event.turn.as_str(), event)).collect();
    let turns = session.turns.iter();
    turns
        .filter_map(|turn| Some((turn, newest.get(turn.id.as_str())?)))
        .filter(|(turn, fallback)| !fallback.refs.contains(&turn.model))
        .map(|(turn, fallback)| {
            let detail = format!(
                "turn {} calls {:?}, and went on with {:?} at seq {}",
                turn.id, turn.model, fallback.refs, fallback.seq
            );
            violation("model", detail)
        })
        .collect()
}

fn violation(name: &'static str, detail: String) -> Violation {
    Violation::new(Invariant::I1, name, detail)
}

/// Events are numbered from the first to the latest seq of the session.
fn gaps(session: &Stored) -> Vec<Violation> {
    let seqs = session.events.iter().map(|event| event.seq);
    if seqs.clone().eq(session.forked_at + 1..session.next_seq) {
        return Vec::new();
    }
    let seqs: Vec<i64> = seqs.collect();
    vec![violation("gap", format!("{seqs:?} where the next is {}", session.next_seq))]
}

/// Each message that is not voided has the event that committed it. A fork has no events of the messages that it
/// copied.
fn unrecorded(session: &Stored) -> Vec<Violation> {
    let events: BTreeMap<i64, &Event> = session.events.iter().map(|event| (event.seq, event)).collect();
    let own = session
        .messages
        .iter()
        .filter(|message| message.seq > session.forked_at && !message.summary && !message.voided);
    own.filter(|message| !events.get(&message.seq).is_some_and(|event| event.refs.contains(&message.id)))
        .map(|message| {
            let detail = format!("message {} at seq {} without its event", message.id, message.seq);
            violation("unrecorded", detail)
        })
        .collect()
}

/// Each event that commits a message has that message, under its seq.
fn missing(session: &Stored) -> Vec<Violation> {
    let messages: BTreeSet<(i64, &str)> =
        session.messages.iter().map(|message| (message.seq, message.id.as_str())).collect();
    let committed = session.events.iter().filter(|event| event.kind == "message_committed");
    committed
        .filter(|event| !event.refs.iter().any(|id| messages.contains(&(event.seq, id.as_str()))))
        .map(|event| {
            let detail = format!("event {} committed {:?}, which is not there", event.seq, event.refs);
            violation("missing", detail)
        })
        .collect()
}
