//! Tests of compactions: only one runs at a time, it is applied only to the context it is based on, and a revert
//! restores the context.

use super::*;
use crate::{
    model::{Seq, Usage},
    session::{
        counters::Counter,
        samples::{answer_rows, compaction, event_summaries, running, waiting},
    },
};

fn making(id: &str, context_version: i64, lease_is_over: bool) -> Session {
    Session {
        compaction: Some(RunningCompaction { id: CompactionId::new(id), context_version, lease_is_over }),
        ..running()
    }
}

fn deleted(session: Session) -> Session {
    Session { state: SessionState::Deleted, ..session }
}

fn shift() -> TokenCounters {
    let mut shift = TokenCounters::default();
    shift.messages(-4, -16);
    shift.count(Counter::User, -5, -500);
    shift.count(Counter::Summary, 1, 40);
    shift
}

fn cost() -> Cost {
    let used = Usage { input: 100, output: 7, ..Usage::default() };
    Cost { model: "model".to_owned(), calls: vec![Some(used), None] }
}

fn events(payload: Payload) -> Rows {
    let mut rows = Rows::default();
    rows.event(payload, StepPosition::default());
    rows
}

fn spent<'a>(change: &Change<'a>) -> Option<(UsagePurpose, &'a str, i64)> {
    let spent = change.usage?;
    Some((spent.purpose, spent.model, spent.totals.calls))
}

#[test]
fn a_compaction_begins_unless_one_is_being_made_or_the_context_is_another() {
    let id = CompactionId::new("new");
    let started = Payload::CompactionStarted(Box::new(compaction("new")));
    let check = |what: &str, session: &Session, seen, expected: &[&str]| {
        let beginning =
            NewCompaction { compaction: &id, seen, info: b"info", started: &started, lease: Duration::from_secs(15) };
        let change = begin(session, &beginning);
        assert_eq!(change.is_some(), !expected.is_empty(), "{what}");
        let Some(change) = change else { return };
        assert_eq!(event_summaries(&change.events), expected, "{what}");
        let made = RunningCompaction { id: id.clone(), context_version: 3, lease_is_over: false };
        assert_eq!(change.session.compaction, Some(made), "{what}");
        assert_eq!(change.compactions.len(), expected.len(), "{what}");
        assert_eq!(change.session.context_version, 3, "the context stays");
    };
    let begins = "CompactionStarted at 0.0";
    check("none is being made", &running(), 3, &[begins]);
    check("a turn waits", &waiting(1), 3, &[begins]);
    check("one is being made", &making("k", 3, false), 3, &[]);
    check("its lease is over", &making("k", 3, true), 3, &["lost k at 0.0", begins]);
    check("another context", &running(), 2, &[]);
    check("there is no session", &deleted(running()), 3, &[]);
}

#[test]
fn only_a_compaction_that_nobody_makes_expires() {
    let check = |session: &Session, expires: bool| {
        let change = expire(session);
        assert_eq!(change.is_some(), expires, "{session:?}");
        assert!(change.is_none_or(|change| change.session.compaction.is_none()));
    };
    check(&making("k", 3, true), true);
    check(&making("k", 3, false), false);
    check(&running(), false);
    check(&deleted(making("k", 3, true)), false);
}

#[test]
fn a_compaction_comes_in_force_in_the_context_that_it_was_made_from() {
    let id = CompactionId::new("k");
    let before = AppliedCompaction { id: CompactionId::new("before"), shift: TokenCounters::default() };
    let cost = cost();
    let rows = events(Payload::CompactionCompleted(Box::new(compaction("k"))));
    let replacement = Replacement {
        from: Seq(2),
        to: Seq(9),
        kept: &[],
        hides_pinned: false,
        shift: shift(),
        rows: &rows,
        info: b"info",
        cost: &cost,
    };
    let check = |what: &str, session: &Session, expected: bool| {
        let change = swap(session, Some(&before), &id, &replacement);
        assert_eq!(change.is_some(), expected, "{what}");
        let Some(change) = change else { return };
        let becoming = &change.session;
        assert_eq!((becoming.context_version, &becoming.compaction), (4, &None), "{what}");
        assert_eq!((becoming.counters.messages, becoming.context_tokens()), (6, 524), "{what}");
        assert_eq!(change.counter_change, shift(), "{what}");
        assert_eq!(becoming.fence, session.fence, "its owner goes on");
        let applies =
            CompactionChange::Applies { compaction: id.clone(), predecessor: Some(before.id.clone()), replacement };
        assert_eq!(change.compactions, [applies], "{what}");
        let expected = (UsagePurpose::Compaction, "model", 2);
        assert_eq!(spent(&change), Some(expected), "{what}");
    };
    check("as it began", &making("k", 3, false), true);
    check("its lease is over, and nothing has failed it", &making("k", 3, true), true);
    check("another context", &making("k", 2, false), false);
    check("another one is being made", &making("other", 3, false), false);
    check("it was given up", &running(), false);
    check("there is no session", &deleted(making("k", 3, false)), false);
}

#[test]
fn a_compaction_that_is_given_up_costs_what_it_cost_and_changes_no_context() {
    let id = CompactionId::new("k");
    let cost = cost();
    let rows = events(Payload::CompactionFailed(Box::new(compaction("k"))));
    let given_up = FailedCompaction { rows: &rows, info: b"info", cost: &cost };
    let session = making("k", 2, false);
    let change = fail(&session, &id, &given_up).expect("it is being made");
    assert_eq!(spent(&change), Some((UsagePurpose::Compaction, "model", 2)));
    let becoming = Session { compaction: None, next_seq: Seq(session.next_seq.0 + 1), ..session };
    assert_eq!(change.session, becoming);
    assert_eq!(change.counter_change, TokenCounters::default());
    assert_eq!(fail(&becoming, &id, &given_up), None, "once");
    assert_eq!(fail(&making("other", 3, false), &id, &given_up), None);
}

#[test]
fn the_compaction_in_force_is_taken_back_with_what_it_changed() {
    let reverted = Payload::CompactionReverted(Box::new(compaction("k")));
    let applied = |id: &str| AppliedCompaction { id: CompactionId::new(id), shift: shift() };
    let id = CompactionId::new("k");
    let check = |what: &str, session: &Session, in_force: Option<AppliedCompaction>, seen, expected: bool| {
        let change = revert(session, in_force.as_ref(), &id, seen, &reverted);
        assert_eq!(change.is_some(), expected, "{what}");
        let Some(change) = change else { return };
        assert_eq!(change.counter_change, -shift(), "{what}");
        assert_eq!(change.session.context_tokens(), 1_476, "{what}");
        assert_eq!(change.session.context_version, 4, "{what}");
        let reverts = CompactionChange::Reverts { compaction: id.clone(), at: Seq(40) };
        assert_eq!(change.compactions, [reverts], "{what}");
    };
    check("it is in force", &running(), Some(applied("k")), 3, true);
    check("a newer one is", &running(), Some(applied("newer")), 3, false);
    check("none is", &running(), None, 3, false);
    check("another context", &running(), Some(applied("k")), 2, false);
    check("there is no session", &deleted(running()), Some(applied("k")), 3, false);
}

#[test]
fn a_summary_stands_at_the_seq_of_the_event_that_tells_of_it() {
    let summary = answer_rows(20).messages.remove(0).message;
    let mut rows = Rows::default();
    rows.summary(Payload::CompactionCompleted(Box::new(compaction("k"))), summary);
    let placed = &rows.messages[0];
    assert_eq!((placed.event, placed.is_summary, rows.count()), (0, true, 1));
}
