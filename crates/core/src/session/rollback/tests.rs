//! Tests of rollback: counters, context and anchor are restored to their state before the turn.

use std::time::Duration;

use super::*;
use crate::{
    model::{CancelCause, CancelOutcome, CompactionId, Ending, Seq, TurnResult, Undone, event::CallCancelReason},
    session::{
        Session,
        change::SyntheticResult,
        cost::StepCost,
        counters::Counter,
        ending::{self, OpenWork, TurnEnd},
        samples::{answer_rows, at, event_summaries, measured, running},
        steps::Owner,
    },
};

fn added() -> TokenCounters {
    let mut added = TokenCounters::default();
    added.messages(2, 8);
    added.count(Counter::User, 1, 100);
    added.count(Counter::Assistant, 1, 200);
    added
}

fn hidden() -> TokenCounters {
    let mut hidden = TokenCounters::default();
    hidden.messages(-1, -4);
    hidden.count(Counter::User, -1, -100);
    hidden.count(Counter::Summary, 1, 10);
    hidden
}

fn over(id: &str) -> AppliedCompaction {
    AppliedCompaction { id: CompactionId::new(id), shift: hidden() }
}

/// The session and the events after this rollback.
fn rolled_back(session: &Session, back: &RollbackTarget) -> (Session, Vec<String>, AnchorTime) {
    let ending = Ending::Cancelled {
        cause: CancelCause::Requested,
        outcome: CancelOutcome::None,
        reason: String::new(),
        undone: Some(Undone::default()),
    };
    let end = TurnEnd {
        ending: &ending,
        result: &TurnResult::default(),
        synthetic: SyntheticResult { text: "closed", tokens: 7, overhead: 4, reason: CallCancelReason::TurnEnded },
    };
    let owner = Owner { replica: "there", lease: Duration::from_secs(15) };
    let open = OpenWork { calls: &[], rollback: Some(back) };
    let rows = answer_rows(20);
    let change = ending::stop(session, open, &rows, &StepCost::default(), &end, owner);
    assert!(change.rolls_back);
    let ended = change.seq_of_end().expect("it ends");
    assert_eq!(ended, Seq(session.next_seq.0 + rows.count()));
    for reverted in &change.compactions {
        let CompactionChange::Reverts { at, .. } = reverted else {
            panic!("{reverted:?}");
        };
        assert_eq!(*at, ended, "they go back with the turn");
    }
    assert_eq!(change.session.context_tokens() - session.context_tokens(), change.counter_change.size());
    let told = event_summaries(&change.events);
    (change.session, told, change.anchor_time)
}

#[test]
fn the_counters_are_those_of_before_the_turn() {
    let session = running();
    let check = |compactions: Vec<AppliedCompaction>, expected: TokenCounters, told: &[&str]| {
        let back = RollbackTarget { compactions, added: added(), before: None };
        let (becoming, events, _) = rolled_back(&session, &back);
        assert_eq!(becoming.context_tokens(), 1_000 + expected.size());
        assert_eq!(becoming.counters.messages, 10 + expected.messages);
        assert_eq!(becoming.context_version, session.context_version + 1);
        assert_eq!(events, told);
        let seqs = i64::try_from(told.len()).unwrap() + answer_rows(20).count();
        assert_eq!(becoming.next_seq, Seq(session.next_seq.0 + seqs));
    };
    let end = "end, 0 wait at 2.3";
    check(Vec::new(), -added(), &[end]);
    let both = -added() + -hidden() + -hidden();
    let reverted = [end, "reverted k2 at 0.0", "reverted k1 at 0.0"];
    check(vec![over("k2"), over("k1")], both, &reverted);
}

#[test]
fn what_was_measured_before_the_turn_is_known_again_if_only_its_compactions_changed_the_context() {
    let check = |version, compactions: usize, expected: Option<i64>| {
        let session = Session { anchor: Some(measured("model", 3, 900)), ..running() };
        let back = RollbackTarget {
            compactions: vec![over("k"); compactions],
            added: added(),
            before: Some((measured("model", version, 500), at(7))),
        };
        let (becoming, _, when) = rolled_back(&session, &back);
        let anchor = becoming.anchor.as_ref();
        assert_eq!(anchor.map(|anchor| anchor.version), expected, "{version}");
        let known = expected.map(|_| 500);
        assert_eq!(anchor.map(|anchor| anchor.input), known, "{version}");
        let again = expected.map_or(AnchorTime::AsBefore, |_| AnchorTime::At(at(7)));
        assert_eq!(when, again, "{version}");
    };
    check(3, 0, Some(4));
    check(2, 1, Some(4));
    check(2, 0, None);
    check(3, 1, None);
}
