//! Compares the stored totals of turns and prune marks with the events of a session. Pure functions, so that a test
//! under `cargo test` can show that each violation is found (`tests/it/chaos_checks.rs`).

use std::collections::{BTreeMap, BTreeSet};

use contextd::pb::{self, event::Payload};

use crate::harness::events::accounted;

/// The stored marks of pruned results.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Marks {
    /// The seq of the prune in effect, by call.
    pub(crate) in_force: BTreeMap<String, i64>,
    /// Prunes that were undone: the call, the seq of the prune, the seq of its restore.
    pub(crate) past: BTreeSet<(String, i64, i64)>,
}

/// Turns whose terminal event has other totals than the sum of their `usage_recorded` events, compactions included.
pub(crate) fn totals(listed: &BTreeMap<i64, pb::Event>) -> Vec<String> {
    let ended = listed.values().filter_map(|event| {
        let result = match &event.payload {
            Some(Payload::TurnCompleted(end)) => &end.result,
            Some(Payload::TurnCancelled(end)) => &end.result,
            Some(Payload::TurnFailed(end)) => &end.result,
            _ => return None,
        };
        let reported = result.as_ref().and_then(|result| result.total_usage).unwrap_or_default();
        Some((&event.turn_id, reported, accounted(listed.values(), &event.turn_id)))
    });
    ended
        .filter(|(_, reported, accounted)| reported != accounted)
        .map(|(turn, reported, accounted)| {
            format!("turn {turn} ended with {reported:?}, its events add up to {accounted:?}")
        })
        .collect()
}

/// The marks that result from the events of prunes and restores.
fn told(listed: &BTreeMap<i64, pb::Event>) -> Marks {
    let mut marks = Marks::default();
    for (seq, event) in listed {
        match &event.payload {
            Some(Payload::ContextPruned(pb::ContextPruned { report: Some(report) })) => {
                marks.in_force.extend(report.call_ids.iter().map(|call| (call.clone(), *seq)));
            }
            Some(Payload::ContextRestored(back)) => {
                for call in &back.call_ids {
                    marks.in_force.remove(call);
                    marks.past.insert((call.clone(), back.pruned_at_seq, *seq));
                }
            }
            _ => {}
        }
    }
    marks
}

/// Marks that differ from those that result from the events.
pub(crate) fn prunes(listed: &BTreeMap<i64, pb::Event>, stored: &Marks) -> Vec<String> {
    let told = told(listed);
    let in_force = |marks: &Marks| marks.in_force.clone().into_iter().collect::<BTreeSet<_>>();
    let mut wrong = Vec::new();
    for (call, seq) in in_force(&told).symmetric_difference(&in_force(stored)) {
        let by = if stored.in_force.get(call) == Some(seq) {
            "is stored, but no event reports it"
        } else {
            "is reported by events, but not stored"
        };
        wrong.push(format!("the prune of {call} at {seq} {by}"));
    }
    for past in told.past.symmetric_difference(&stored.past) {
        let by = if stored.past.contains(past) {
            "is stored, but no event reports it"
        } else {
            "is reported by events, but not stored"
        };
        let (call, pruned, restored) = past;
        wrong.push(format!("the restore at {restored} of {call}, pruned at {pruned}, {by}"));
    }
    wrong
}
