//! Checks a session after races on its queue: the invariants of stored sessions, and the acknowledgements against what
//! clients can read.

use std::collections::{BTreeMap, BTreeSet};

use contextd::pb::{self, event::Payload};

use crate::harness::invariants::{self, Stored};

/// A message that was acknowledged, and the response.
#[derive(Debug, Clone)]
pub(super) struct Acknowledged {
    pub(super) id: String,
    pub(super) words: String,
    /// The turn that was running; empty if none was.
    pub(super) turn: String,
    pub(super) expires: Option<prost_types::Timestamp>,
}

/// Violations of invariants in a stored session, and acknowledged messages that are not in its queue.
pub(super) fn violations(stored: &mut Stored, acknowledged: &[Acknowledged]) -> Vec<String> {
    stored.set_words(|queued| {
        let told = acknowledged.iter().find(|told| told.id == queued.id)?;
        Some(&told.words)
    });
    let found = invariants::check(stored);
    let lost = acknowledged.iter().filter(|told| !stored.queue.iter().any(|queued| queued.id == told.id));
    let lost = lost.map(|told| format!("{:?} was acknowledged and is lost", told.words));
    found.iter().map(ToString::to_string).chain(lost).collect()
}

/// What a client can read of a session at rest.
pub(super) struct Read {
    pub(super) events: Vec<pb::Event>,
    pub(super) messages: Vec<pb::Message>,
    pub(super) waiting: BTreeSet<String>,
}

/// The relevant content of the events.
#[derive(Default)]
struct Told<'a> {
    /// By message, the seqs of the events that end its wait.
    ends: BTreeMap<&'a str, Vec<i64>>,
    applied: BTreeSet<&'a str>,
    /// By turn, the seq of its end and the pending messages that it lists.
    over: BTreeMap<&'a str, (i64, BTreeSet<&'a str>)>,
    /// The times at which messages expired.
    expired: BTreeMap<&'a str, &'a prost_types::Timestamp>,
    wrong: Vec<String>,
}

impl Read {
    /// All violations, given the messages that were acknowledged to each client, in order.
    pub(super) fn check(&self, clients: &[Vec<Acknowledged>]) -> Vec<String> {
        let mut told = self.told();
        let mut wrong = std::mem::take(&mut told.wrong);
        for acknowledged in clients {
            wrong.extend(acknowledged.iter().flat_map(|message| self.wrong_with(message, &told)));
            let places: Vec<usize> = acknowledged.iter().filter_map(|message| self.places(message).next()).collect();
            if !places.is_sorted() {
                wrong.push(format!("{:?} stand in another order: {places:?}", acknowledged[0].words));
            }
        }
        wrong
    }

    fn told(&self) -> Told<'_> {
        let mut told = Told::default();
        for (event, seq) in self.events.iter().zip(1..) {
            if event.seq != seq {
                told.wrong.push(format!("seq {} stands where {seq} should", event.seq));
            }
            let Some(payload) = &event.payload else {
                told.wrong.push(format!("event {} has no payload", event.seq));
                continue;
            };
            for (id, taken) in ended_by(payload) {
                told.ends.entry(id).or_default().push(event.seq);
                told.applied.extend(taken.then_some(id));
            }
            if let (Payload::QueuedMessageExpired(it), Some(at)) = (payload, &event.time) {
                told.expired.insert(&it.queued_message_id, at);
            }
            if let Some(listed) = end_of_turn(payload)
                && told.over.insert(&event.turn_id, (event.seq, listed)).is_some()
            {
                told.wrong.push(format!("turn {} ended twice", event.turn_id));
            }
        }
        told
    }

    fn wrong_with(&self, message: &Acknowledged, told: &Told<'_>) -> Vec<String> {
        let Acknowledged { id, words, turn, expires } = message;
        let mut wrong = Vec::new();
        let ended = told.ends.get(id.as_str()).cloned().unwrap_or_default();
        let waits = usize::from(self.waiting.contains(id));
        if ended.len() + waits != 1 {
            wrong.push(format!("{words:?} ended {ended:?} and waits {waits} times"));
        }
        let said = self.places(message).count();
        if said != usize::from(told.applied.contains(id.as_str())) {
            wrong.push(format!("{words:?} stands {said} times in the transcript, and ended {ended:?}"));
        }
        // The response named a running turn: the message is in that turn, ended before it, or is listed at its end.
        if let Some((end, listed)) = told.over.get(turn.as_str())
            && ended.first().is_none_or(|seq| seq > end)
            && !listed.contains(id.as_str())
        {
            wrong.push(format!("{words:?} was promised to turn {turn}, which ended without it"));
        }
        let when = |at: &prost_types::Timestamp| (at.seconds, at.nanos);
        if let Some(at) = told.expired.get(id.as_str())
            && expires.as_ref().is_none_or(|expires| when(at) < when(expires))
        {
            wrong.push(format!("{words:?} expired at {at:?}, before its time: {expires:?}"));
        }
        wrong
    }

    /// The positions of a message's text in the transcript, counted in parts.
    fn places(&self, message: &Acknowledged) -> impl Iterator<Item = usize> {
        let parts = self.messages.iter().flat_map(|message| &message.parts).enumerate();
        parts.filter(|(_, part)| says(part, &message.words)).map(|(place, _)| place)
    }
}

/// The messages whose wait an event ends, and whether it applies them.
fn ended_by(payload: &Payload) -> Vec<(&str, bool)> {
    match payload {
        Payload::MessagesApplied(it) => it.messages.iter().map(|it| (it.queued_message_id.as_str(), true)).collect(),
        Payload::QueuedMessageCancelled(it) => vec![(&it.queued_message_id, false)],
        Payload::QueuedMessageExpired(it) => vec![(&it.queued_message_id, false)],
        Payload::QueuedMessageDropped(it) => vec![(&it.queued_message_id, false)],
        _ => Vec::new(),
    }
}

fn says(part: &pb::Part, words: &str) -> bool {
    matches!(&part.content, Some(pb::part::Content::Text(text)) if text == words)
}

/// The pending messages that the end of a turn lists. Returns `None` for other events.
fn end_of_turn(payload: &Payload) -> Option<BTreeSet<&str>> {
    let result = match payload {
        Payload::TurnCompleted(it) => &it.result,
        Payload::TurnCancelled(it) => &it.result,
        Payload::TurnFailed(it) => &it.result,
        _ => return None,
    };
    Some(result.iter().flat_map(|result| &result.queued_message_ids).map(String::as_str).collect())
}
