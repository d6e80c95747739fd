//! The events of a commit as readers on the same replica get them.

use crate::{
    codec::event::kind,
    model::{Message, Seq, event::StoredEvent, message::StoredPart},
    session::{
        change::Change,
        rows::{NewMessage, Placed},
    },
    store::recent_events::RecentEvent,
};

/// Adds the events of a change. Where one refers to what the change does not have, it is left out, and so are those
/// before it: what is kept has no gap. `bytes_of`: the size of a message as it is stored.
pub(super) fn add(
    recent: &mut Vec<RecentEvent>,
    change: &Change<'_>,
    events: Vec<StoredEvent>,
    estimator: &str,
    bytes_of: impl Fn(&str) -> u64,
) {
    for event in events {
        match shown(change, event, estimator, &bytes_of) {
            Some(event) => recent.push(event),
            None => recent.clear(),
        }
    }
}

fn shown(
    change: &Change<'_>,
    event: StoredEvent,
    estimator: &str,
    bytes_of: impl Fn(&str) -> u64,
) -> Option<RecentEvent> {
    let ends = change.seq_of_end() == Some(event.seq);
    if ends && event.totals.is_none() || event.kind == kind::TOOL_CALL_COMPLETED {
        return None;
    }
    let mut bytes = event.payload.len() as u64;
    let mut message = None;
    if event.kind == kind::MESSAGE_COMMITTED {
        let id = event.refs.first()?;
        let mut messages = change.rows?.messages.iter();
        let placed = messages.find(|placed| placed.message.id.as_str() == id)?;
        message = Some(as_read(change, placed, &event, estimator)?);
        bytes += bytes_of(id);
    }
    Some(RecentEvent {
        event,
        message,
        bytes,
    })
}

/// The message as a reader gets it. Returns `None` if the host that appended it gave it a time of creation.
fn as_read(
    change: &Change<'_>,
    placed: &Placed,
    StoredEvent { seq, at, .. }: &StoredEvent,
    estimator: &str,
) -> Option<Message> {
    let Placed {
        event: _,
        step,
        is_summary,
        message,
    } = placed;
    let NewMessage {
        id,
        role,
        parts,
        overhead,
        pinned,
        metadata,
        response,
        queued,
        created_at: None,
    } = message
    else {
        return None;
    };
    let part = |part: &StoredPart| StoredPart {
        estimator: estimator.to_owned(),
        ..part.clone()
    };
    Some(Message {
        id: id.clone(),
        turn: change.about.clone().filter(|_| !is_summary),
        step: *step,
        seq: Seq(seq.0),
        role: *role,
        parts: parts.iter().map(part).collect(),
        overhead: *overhead,
        created_at: *at,
        response: response.clone(),
        pinned: *pinned,
        metadata: metadata.clone(),
        queued: queued.clone(),
        is_summary: *is_summary,
        compacted_by: None,
        voided_at: None,
    })
}
