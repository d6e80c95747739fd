//! Pruning: tool results are hidden from the model, and restored. This may happen while a turn is running; the owner of
//! the turn detects it by the new version of the context.

use super::{
    Session, SessionState,
    change::Change,
    counters::{Counter, TokenCounters},
    mark_rows::{Mark, Marks, PartPosition},
};
use crate::model::{Payload, Seq};

#[cfg(test)]
mod tests;

/// Tool results to prune or to restore.
#[derive(Debug, Clone, Copy)]
pub struct Marking<'a> {
    /// The version of the context in which they were chosen.
    pub seen: i64,
    pub places: &'a [PartPosition],
    /// The tokens by which the transcript shrinks or grows.
    pub tokens: i64,
    pub event: &'a Payload,
}

/// Replaces results by placeholders. Returns `None` if the context has changed since they were chosen, there are none,
/// or the session is deleted.
pub fn prune<'a>(session: &Session, marking: &Marking<'a>, placeholder: u32) -> Option<Change<'a>> {
    let mut change = apply(session, marking, Mark::Pruned { placeholder })?;
    shift(&mut change, marking, 1);
    Some(change)
}

/// Restores the results that one prune had hidden. Returns `None` in the same cases as [`prune`].
pub fn restore<'a>(session: &Session, marking: &Marking<'a>, pruned_at: Seq) -> Option<Change<'a>> {
    let mut change = apply(session, marking, Mark::Restored { pruned_at })?;
    shift(&mut change, marking, -1);
    Some(change)
}

fn apply<'a>(session: &Session, marking: &Marking<'a>, mark: Mark) -> Option<Change<'a>> {
    let is_seen = session.context_version == marking.seen;
    if session.state == SessionState::Deleted || !is_seen || marking.places.is_empty() {
        return None;
    }
    let mut change = Change::of(session);
    change.session.context_version += 1;
    change.marks = Some(Marks { places: marking.places, mark });
    change.append_event(marking.event, None);
    Some(change)
}

/// Adds the results to the counter of pruned ones (1), or removes them (-1).
fn shift(change: &mut Change<'_>, marking: &Marking<'_>, sign: i32) {
    let count = i32::try_from(marking.places.len()).unwrap_or(i32::MAX);
    let tokens = i64::from(sign) * marking.tokens;
    let mut shift = TokenCounters::default();
    shift.count(Counter::ToolResults, 0, -tokens);
    shift.count(Counter::Pruned, sign * count, tokens);
    change.change_counters(&shift);
}
