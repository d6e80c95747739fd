//! Tests of the owner's right to write, and of the start of steps and attempts.

use super::*;
use crate::{
    model::{CancelCause, Fence, MessageId, Seq, StepPosition, TurnId, Usage, UsagePurpose, UsageTotals},
    session::{
        CancelRequest, SessionState,
        change::ModelUsage,
        samples::{answer_rows, running, waiting},
    },
};

const OWNER: Owner<'static> = Owner { replica: "there", lease: Duration::from_secs(15) };

fn step(revision: i64, in_any_case: bool) -> NewStep<'static> {
    NewStep { revision, in_any_case, started: b"started", size_offset: 300 }
}

#[test]
fn only_the_owner_under_its_fence_and_turn_writes_and_what_it_wrote_has_landed() {
    let turn = TurnId::new("turn");
    let other = TurnId::new("other");
    let next = Session { fence: running().fence.next(), ..running() };
    let check = |session: &Session, turn: &TurnId, (epoch, op), replica, expected: OwnerStatus| {
        let fence = Fence { epoch, op };
        let found = owner_status(session, TurnFence { turn, fence }, replica);
        assert_eq!(found, expected, "{session:?} {turn} {fence:?} {replica}");
    };
    check(&running(), &turn, (5, 9), "there", OwnerStatus::Owner);
    check(&running(), &turn, (5, 9), "here", OwnerStatus::NotOwner);
    check(&running(), &other, (5, 9), "there", OwnerStatus::NotOwner);
    check(&running(), &turn, (4, 9), "there", OwnerStatus::NotOwner);
    check(&running(), &turn, (5, 10), "there", OwnerStatus::NotOwner);
    check(&running(), &turn, (5, 7), "there", OwnerStatus::NotOwner);
    check(&next, &turn, (5, 9), "there", OwnerStatus::AlreadyCommitted);
    check(&next, &turn, (5, 9), "here", OwnerStatus::NotOwner);
    check(&next, &other, (5, 9), "there", OwnerStatus::NotOwner);
    check(&next, &turn, (4, 9), "there", OwnerStatus::NotOwner);
    // The last write of this replica was the append after which the turn waits.
    check(&waiting(1), &turn, (5, 8), "there", OwnerStatus::AlreadyCommitted);
    check(&waiting(1), &turn, (5, 9), "there", OwnerStatus::NotOwner);
    let handed_over = Session { owner: None, ..running() };
    check(&handed_over, &turn, (5, 9), "there", OwnerStatus::NotOwner);
    let ended = Session { state: SessionState::Idle, ..running() };
    check(&ended, &turn, (5, 9), "there", OwnerStatus::NotOwner);
}

#[test]
fn a_step_begins_for_the_revision_in_force_or_in_any_case() {
    let check = |revision, in_any_case, expected: bool| {
        let change = begin(&running(), &step(revision, in_any_case), OWNER);
        assert_eq!(change.is_some(), expected, "{revision} {in_any_case}");
    };
    check(7, false, true);
    check(6, false, false);
    check(8, false, false);
    check(6, true, true);
}

#[test]
fn a_step_that_begins_is_progress_and_the_first_attempt() {
    let change = begin(&running(), &step(6, true), OWNER).unwrap();
    let expected = Session {
        fence: Fence { epoch: 5, op: 10 },
        step: 3,
        attempt: 1,
        takeovers: 0,
        next_seq: Seq(41),
        ..running()
    };
    assert_eq!(change.session, expected);
    assert_eq!(change.lease, Some(OWNER.lease));
    assert_eq!(change.turn.step_count, Some(2));
    let at = StepPosition { step: 3, attempt: 1 };
    let event = Event::StepStarted { revision: 6, prompt_tokens: 1_300, started: b"started".to_vec() };
    assert_eq!(change.events, [(at, event)]);
    assert!(!change.drops_partial);
}

#[test]
fn an_attempt_that_begins_is_no_progress_and_voids_what_was_shown() {
    let rows = answer_rows(20);
    let usage = Usage { input: 100, output: 7, ..Usage::default() };
    let message = MessageId::new("answer");
    let cost = StepCost { model: "test/model", call: Some(Some(&usage)), message: Some(&message), measured: None };
    let request = TurnRequest::default();
    let change = retry(&running(), &rows, &cost, Some(&request), OWNER);
    let expected = Session {
        fence: Fence { epoch: 5, op: 10 },
        attempt: 4,
        next_seq: Seq(42),
        counters: running().counters + rows.shift(),
        ..running()
    };
    assert_eq!(change.session, expected);
    assert_eq!(change.turn.request, Some(&request));
    assert_eq!((change.turn.step_count, change.turn.final_message), (None, None));
    let spent = UsageTotals { calls: 1, input: 100, output: 7, ..UsageTotals::default() };
    let expected = ModelUsage { purpose: UsagePurpose::Turn, model: "test/model", totals: spent };
    assert_eq!(change.usage, Some(expected));
    assert!(change.drops_partial);
}

#[test]
fn a_cancel_outlasts_the_owners_writes() {
    let cancel = CancelRequest { cause: CancelCause::Requested, reason: "enough".to_owned(), rollback: true };
    let session = Session { cancel: Some(cancel.clone()), ..running() };
    let rows = Rows::new("test", 0);
    let begun = begin(&session, &step(7, false), OWNER).unwrap();
    let retried = retry(&session, &rows, &StepCost::default(), None, OWNER);
    assert_eq!(begun.session.cancel, Some(cancel.clone()));
    assert_eq!(retried.session.cancel, Some(cancel));
}
