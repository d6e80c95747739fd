//! Rollback: the end of a turn that removes its messages from the prompt. The messages stay readable; the model gets
//! the conversation as it was before the turn.

use jiff::Timestamp;

use super::{
    change::{AnchorTime, Change, Event},
    compaction::AppliedCompaction,
    compaction_rows::CompactionChange,
    counters::TokenCounters,
};
use crate::model::{Anchor, StepPosition};

#[cfg(test)]
mod tests;

/// The stored state that a rollback undoes.
#[derive(Debug, Clone, PartialEq)]
pub struct RollbackTarget {
    /// The compactions that replace messages of the turn, newest first.
    pub compactions: Vec<AppliedCompaction>,
    /// The sum of the live messages of the turn in the counters.
    pub added: TokenCounters,
    /// The anchor when the turn started, and its time.
    pub before: Option<(Anchor, Timestamp)>,
}

/// Rolls back the turn that `ended` ends. Compactions that replace its messages are reverted too. The anchor from
/// before the turn is restored if nothing but those compactions changed the prompt since; measurements of the turn are
/// discarded.
pub(super) fn apply(ended: &mut Change<'_>, back: &RollbackTarget) {
    ended.rolls_back = true;
    // The rows of this change are rolled back too.
    let own = ended.counter_change;
    ended.change_counters(&-own);
    ended.change_counters(&-back.added);
    let at = ended.session.last_seq();
    for AppliedCompaction { id, shift } in &back.compactions {
        ended.change_counters(&-*shift);
        ended.compactions.push(CompactionChange::Reverts { compaction: id.clone(), at });
        let event = Event::CompactionReverted(id.clone());
        ended.event_at(StepPosition::default(), event);
    }
    let becoming = &mut ended.session;
    let swaps = i64::try_from(back.compactions.len()).unwrap_or(i64::MAX);
    let is_that_again = |measured: &&(Anchor, Timestamp)| measured.0.version + swaps == becoming.context_version;
    let known = back.before.as_ref().filter(is_that_again);
    becoming.context_version += 1;
    becoming.anchor = known.map(|(anchor, _)| Anchor { version: becoming.context_version, ..anchor.clone() });
    ended.anchor_time = known.map_or(AnchorTime::AsBefore, |(_, at)| AnchorTime::At(*at));
}
