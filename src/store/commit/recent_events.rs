//! The events of a commit, in the form in which readers on the same replica receive them.

use crate::{
    codec::event::{CompletedCall, kind},
    model::{Message, event::StoredEvent},
    session::change::Change,
    store::recent_events::RecentEvent,
};

/// What the events of a commit refer to.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReferencedContent<'a> {
    /// Messages that the commit wrote.
    pub(super) messages: &'a [Message],
    /// Results of calls that the commit completed.
    pub(super) results: &'a [CompletedCall],
}

/// Adds the events of a change and the messages and results they refer to. If one of these is not available, the event
/// and all events before it are dropped, so that the kept events have no gap. `bytes_of` returns the stored size of a
/// message, or of the result of a call.
pub(super) fn add(
    recent: &mut Vec<RecentEvent>,
    change: &Change<'_>,
    events: impl Iterator<Item = StoredEvent>,
    refers: ReferencedContent<'_>,
    bytes_of: impl Fn(&str) -> u64,
) {
    for event in events {
        match shown(change, event, refers, &bytes_of) {
            Some(event) => recent.push(event),
            None => recent.clear(),
        }
    }
}

fn shown(
    change: &Change<'_>,
    event: StoredEvent,
    ReferencedContent { messages, results }: ReferencedContent<'_>,
    bytes_of: impl Fn(&str) -> u64,
) -> Option<RecentEvent> {
    let ends = change.seq_of_end() == Some(event.seq);
    if ends && event.totals.is_none() {
        return None;
    }
    let mut bytes = event.payload.len() as u64;
    let (mut message, mut result) = (None, None);
    if event.kind == kind::MESSAGE_COMMITTED {
        let id = event.refs.first()?;
        let mut messages = messages.iter();
        message = Some(messages.find(|it| it.id.as_str() == id)?.clone());
        bytes += bytes_of(id);
    } else if event.kind == kind::TOOL_CALL_COMPLETED {
        let call = event.refs.first()?;
        let mut results = results.iter();
        let completed = results.find(|it| it.result.call.as_str() == call)?;
        result = Some(completed.clone());
        bytes += bytes_of(call);
    }
    Some(RecentEvent { event, message, result, bytes })
}
