//! I3: a queued message ends exactly once, with an event. It is in the transcript exactly once if it was applied,
//! otherwise not at all.

use std::collections::BTreeMap;

use super::{Invariant, Message, Queued, QueuedStatus, RunState, Stored, Violation};

pub(super) fn i3(session: &Stored) -> Vec<Violation> {
    let messages: BTreeMap<&str, &Message> =
        session.messages.iter().map(|message| (message.id.as_str(), message)).collect();
    let wrong = session.queue.iter().filter_map(|queued| {
        let ends = ends(session, queued);
        let places = places(session, &messages, queued);
        let right = ended_once(session, queued, &ends)
            && placed_once(queued, places.as_deref())
            && !(session.state == RunState::Deleted && queued.status == QueuedStatus::Pending);
        (!right).then(|| {
            let detail = format!(
                "{queued:?} is in {places:?} and has ends {ends:?}; the run is {:?}, the next seq {}",
                session.state, session.next_seq
            );
            Violation::new(Invariant::I3, "message", detail)
        })
    });
    wrong.collect()
}

/// The events that end a message without applying it.
fn ends<'a>(session: &'a Stored, queued: &Queued) -> Vec<(i64, &'a str)> {
    session
        .events
        .iter()
        .filter(|event| event.kind.starts_with("queued_message_") && event.refs.contains(&queued.id))
        .map(|event| (event.seq, event.kind.as_str()))
        .collect()
}

fn ended_once(session: &Stored, queued: &Queued, ends: &[(i64, &str)]) -> bool {
    let one = |kind: &str| ends == [(queued.seq, kind)];
    match queued.status {
        QueuedStatus::Pending => ends.is_empty(),
        QueuedStatus::Applied => {
            let applied = |kind: &str, seq| kind == "messages_applied" && seq == queued.seq;
            ends.is_empty() && session.events.iter().any(|event| applied(&event.kind, event.seq))
        }
        QueuedStatus::Cancelled => one("queued_message_cancelled"),
        QueuedStatus::Expired => one("queued_message_expired"),
        QueuedStatus::Dropped => one("queued_message_dropped"),
    }
}

/// The messages whose parts contain the text of a queued message, one for each part. Summaries and responses are
/// ignored, since they may repeat it.
fn places<'a>(session: &'a Stored, messages: &BTreeMap<&str, &Message>, queued: &Queued) -> Option<Vec<&'a str>> {
    let words = queued.words.as_deref()?;
    let places = session.parts.iter().filter(|part| {
        let users = messages.get(part.message.as_str()).is_none_or(|message| message.role == 2 && !message.summary);
        users && has_words(&part.body, words)
    });
    Some(places.map(|part| part.message.as_str()).collect())
}

fn placed_once(queued: &Queued, places: Option<&[&str]>) -> bool {
    places.is_none_or(|places| match queued.status {
        QueuedStatus::Applied => places == [queued.applied_to.as_str()],
        QueuedStatus::Pending | QueuedStatus::Cancelled | QueuedStatus::Expired | QueuedStatus::Dropped => {
            places.is_empty()
        }
    })
}

/// Whether the text contains `words` at word boundaries.
fn has_words(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + words.len()..].chars().next();
        let part_of_a_word = |it: Option<char>| it.is_some_and(char::is_alphanumeric);
        !part_of_a_word(before) && !part_of_a_word(after)
    })
}
