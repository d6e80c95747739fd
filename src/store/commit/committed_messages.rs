//! The messages and results of a commit, as they are read after it.

use jiff::Timestamp;

use crate::{
    codec::event::CompletedCall,
    model::{Content, Message, Seq, message::StoredPart},
    session::{
        change::{Change, ClosedCall},
        rows::{MessageRow, NewMessage},
    },
    store::session_memory::SessionMemory,
};

/// The messages of a change after its commit at `at`. Messages that a host appended with a creation time are left out.
pub(super) fn messages(change: &Change<'_>, at: Timestamp, estimator: &str) -> Vec<Message> {
    let rows = change.rows.iter().flat_map(|rows| &rows.messages);
    rows.filter_map(|placed| as_read(change, placed, at, estimator)).collect()
}

/// The results of the calls that the change closed, of those whose request time is known.
pub(super) fn results(change: &Change<'_>, at: Timestamp, known: Option<&SessionMemory>) -> Vec<CompletedCall> {
    let completed = |closed: &ClosedCall<'_>| {
        let elapsed = at.duration_since(known?.asked_at(&closed.call)?);
        let Content::ToolResult(result) = closed.result().part.content else {
            return None;
        };
        Some(CompletedCall { result, elapsed: elapsed.try_into().unwrap_or_default() })
    };
    change.closed.iter().filter_map(completed).collect()
}

/// The message that holds the results of a batch, from the session's memory after the commit. Returns `None` if the
/// message also has results of other commits, because its stored size is not known then.
pub(super) fn of_results(change: &Change<'_>, known: Option<&SessionMemory>) -> Option<Message> {
    let (_, message) = change.message.as_ref()?;
    let newest = known?.newest().filter(|newest| newest.id == message.id)?;
    (newest.parts.len() == change.closed.len()).then(|| newest.clone())
}

fn as_read(change: &Change<'_>, placed: &MessageRow, at: Timestamp, estimator: &str) -> Option<Message> {
    let MessageRow { event, step, is_summary, message } = placed;
    let NewMessage { id, role, parts, overhead, pinned, metadata, response, queued, created_at: None } = message else {
        return None;
    };
    let part = |part: &StoredPart| StoredPart { estimator: estimator.to_owned(), ..part.clone() };
    Some(Message {
        id: id.clone(),
        turn: change.turn_id.clone().filter(|_| !is_summary),
        step: *step,
        seq: Seq(change.first_seq().0 + i64::try_from(*event).ok()?),
        role: *role,
        parts: parts.iter().map(part).collect(),
        overhead: *overhead,
        created_at: at,
        response: response.clone(),
        pinned: *pinned,
        metadata: metadata.clone(),
        queued: queued.clone(),
        is_summary: *is_summary,
        compacted_by: None,
        voided_at: None,
    })
}
