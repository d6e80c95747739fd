//! The checks of `tests/chaos` that are pure functions. Each must find the violation that it is for.

use std::collections::BTreeMap;

use contextd::pb::{self, event::Payload};

#[path = "../chaos/accounts.rs"]
mod accounts;

use accounts::{Marks, prunes, totals};

/// Events of one turn with these payloads, numbered from 1.
fn listed(payloads: Vec<Payload>) -> BTreeMap<i64, pb::Event> {
    let event = |(seq, payload)| {
        (seq, pb::Event { seq, turn_id: "t".to_owned(), payload: Some(payload), ..pb::Event::default() })
    };
    (1..).zip(payloads).map(event).collect()
}

fn used(purpose: pb::UsagePurpose, input_tokens: i32, output_tokens: i32) -> Payload {
    let usage = Some(pb::Usage { input_tokens, output_tokens, ..pb::Usage::default() });
    Payload::UsageRecorded(pb::UsageRecorded { purpose: purpose.into(), usage, ..Default::default() })
}

fn completed(calls: i64, input_tokens: i64, output_tokens: i64) -> Payload {
    let total_tokens = input_tokens + output_tokens;
    let total_usage = Some(pb::UsageTotals { calls, input_tokens, output_tokens, total_tokens, ..Default::default() });
    let result = Some(pb::TurnResult { total_usage, ..Default::default() });
    Payload::TurnCompleted(pb::TurnCompleted { result, ..Default::default() })
}

#[test]
fn the_checker_finds_a_turn_whose_totals_leave_out_a_compaction() {
    let call = || used(pb::UsagePurpose::Turn, 100, 10);
    let summary = || used(pb::UsagePurpose::Compaction, 900, 50);
    let found = |end| totals(&listed(vec![call(), summary(), call(), end])).len();
    assert_eq!(found(completed(3, 1_100, 70)), 0);
    assert_eq!(found(completed(2, 200, 20)), 1, "the compaction is left out");
    assert_eq!(found(completed(3, 1_100, 71)), 1);
    let nothing = Payload::TurnFailed(pb::TurnFailed::default());
    assert_eq!(found(nothing.clone()), 1, "a failed turn has spent too");
    assert_eq!(totals(&listed(vec![nothing])).len(), 0);
}

#[test]
fn the_checker_finds_marks_of_results_that_no_prune_or_restore_made() {
    let calls = |calls: &[&str]| calls.iter().map(|call| (*call).to_owned()).collect::<Vec<_>>();
    let pruned = |ids| {
        let report = Some(pb::PruneReport { call_ids: calls(ids), ..Default::default() });
        Payload::ContextPruned(pb::ContextPruned { report })
    };
    let restored = |pruned_at_seq, ids| {
        Payload::ContextRestored(pb::ContextRestored { pruned_at_seq, call_ids: calls(ids), ..Default::default() })
    };
    let listed = listed(vec![pruned(&["a", "b"]), restored(1, &["b"]), pruned(&["b", "c"]), restored(3, &["c"])]);
    let right = Marks {
        in_force: [("a".to_owned(), 1), ("b".to_owned(), 3)].into(),
        past: [("b".to_owned(), 1, 2), ("c".to_owned(), 3, 4)].into(),
    };
    assert_eq!(prunes(&listed, &right), Vec::<String>::new());
    let check = |change: fn(&mut Marks), expected: &[&str]| {
        let mut stored = right.clone();
        change(&mut stored);
        assert_eq!(prunes(&listed, &stored), expected);
    };
    check(
        |it| assert!(it.in_force.remove("a").is_some()),
        &["the prune of a at 1 is reported by events, but not stored"],
    );
    check(
        |it| assert!(it.in_force.insert("c".to_owned(), 3).is_none()),
        &["the prune of c at 3 is stored, but no event reports it"],
    );
    check(
        |it| assert!(it.past.pop_first().is_some()),
        &["the restore at 2 of b, pruned at 1, is reported by events, but not stored"],
    );
    check(
        |it| assert!(it.past.insert(("a".to_owned(), 1, 4))),
        &["the restore at 4 of a, pruned at 1, is stored, but no event reports it"],
    );
}
