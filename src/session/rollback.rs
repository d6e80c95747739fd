//! A rollback: the end of a turn that takes its messages back. They stay readable; the model sees the
//! conversation as it was before.

use jiff::Timestamp;

use super::{
    change::{Change, Event, Measured},
    compaction::Applied,
    compaction_rows::CompactionChange,
    counters::Shift,
};
use crate::model::{Anchor, StepPosition};

#[cfg(test)]
mod tests;

/// What a rollback takes back of what is written.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenBack {
    /// The compactions that stand for messages of the turn, the newest first.
    pub compactions: Vec<Applied>,
    /// What the live messages of the turn add to the counters.
    pub added: Shift,
    /// What was measured when the turn began, and when.
    pub before: Option<(Anchor, Timestamp)>,
}

/// Takes the turn back that `ended` ends. Compactions that stand for its messages are reverted with it. What was
/// measured before the turn is known again if nothing but those compactions changed the prompt meanwhile; what
/// the turn measured is forgotten.
pub(super) fn apply(ended: &mut Change<'_>, back: &TakenBack) {
    ended.takes_back = true;
    // What this write adds is taken back as soon as it is there.
    let own = ended.shift;
    ended.shift_by(&-own);
    ended.shift_by(&-back.added);
    let at = ended.session.last_seq();
    for Applied { id, shift } in &back.compactions {
        ended.shift_by(&-*shift);
        ended.compactions.push(CompactionChange::Reverts {
            compaction: id.clone(),
            at,
        });
        let event = Event::CompactionReverted(id.clone());
        ended.event_at(StepPosition::default(), event);
    }
    let becoming = &mut ended.session;
    let swaps = i64::try_from(back.compactions.len()).unwrap_or(i64::MAX);
    let is_that_again =
        |measured: &&(Anchor, Timestamp)| measured.0.version + swaps == becoming.context_version;
    let known = back.before.as_ref().filter(is_that_again);
    becoming.context_version += 1;
    becoming.anchor = known.map(|(anchor, _)| Anchor {
        version: becoming.context_version,
        ..anchor.clone()
    });
    ended.measured = known.map_or(Measured::AsBefore, |(_, at)| Measured::At(*at));
}
