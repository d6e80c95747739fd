//! Tool results that the model no longer sees, and their return. Anyone may write this beside a running turn:
//! its owner is not refused anything, and sees that the version of the context moved.

use super::{
    Session, SessionState,
    change::Change,
    counters::{Counter, Shift},
    mark_rows::{Mark, Marks, Place},
};
use crate::model::{Payload, Seq};

#[cfg(test)]
mod tests;

/// Results to be cleared, or to come back.
#[derive(Debug, Clone, Copy)]
pub struct Marking<'a> {
    /// The version of the context that they were chosen from.
    pub seen: i64,
    /// Where they stand.
    pub places: &'a [Place],
    /// The tokens by which the transcript shrinks or grows.
    pub tokens: i64,
    /// The event.
    pub event: &'a Payload,
}

/// Clears results. `None`: the context is another one than they were chosen from, there are none, or the
/// session is deleted.
pub fn prune<'a>(session: &Session, marking: &Marking<'a>, placeholder: u32) -> Option<Change<'a>> {
    let mut change = apply(session, marking, Mark::Cleared { placeholder })?;
    shift(&mut change, marking, 1);
    Some(change)
}

/// Lets the model see results again that one prune had cleared. `None` as above.
pub fn restore<'a>(session: &Session, marking: &Marking<'a>, pruned_at: Seq) -> Option<Change<'a>> {
    let mut change = apply(session, marking, Mark::Returned { pruned_at })?;
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
    change.marks = Some(Marks {
        places: marking.places,
        mark,
    });
    change.tell(marking.event, None);
    Some(change)
}

/// Counts them as pruned (1), or no longer (-1).
fn shift(change: &mut Change<'_>, marking: &Marking<'_>, sign: i32) {
    let count = i32::try_from(marking.places.len()).unwrap_or(i32::MAX);
    let tokens = i64::from(sign) * marking.tokens;
    let mut shift = Shift::default();
    shift.count(Counter::ToolResults, 0, -tokens);
    shift.count(Counter::Pruned, sign * count, tokens);
    change.shift_by(&shift);
}
