//! Tests of ownership: which replica gets a turn, and which may release it.

use super::*;
use crate::{
    model::{Fence, Seq, StepPosition},
    session::samples::{at, running, waiting},
};

const HEIR: NewOwner<'static> = NewOwner { replica: "here", lease: Duration::from_secs(15) };

fn lapsed() -> Session {
    Session { lease_is_over: true, ..running() }
}

fn handed_over() -> Session {
    Session { owner: None, ..lapsed() }
}

#[test]
fn a_turn_without_an_owner_is_taken_over_under_the_epoch_that_was_seen() {
    let check = |session: &Session, epoch: i64, now: i64, expected: bool| {
        let change = take_over(session, epoch, HEIR, at(now));
        assert_eq!(change.is_some(), expected, "{session:?} {epoch} {now}");
    };
    check(&lapsed(), 5, 0, true);
    check(&lapsed(), 4, 0, false);
    check(&handed_over(), 5, 0, true);
    check(&running(), 5, 0, false);
    check(&waiting(1), 5, 101, true);
    check(&waiting(1), 5, 100, false);
    for state in [SessionState::Idle, SessionState::Deleted] {
        let session = Session { state, ..handed_over() };
        check(&session, 5, 1_000, false);
    }
}

#[test]
fn a_step_that_was_cut_short_is_tried_again_and_counts_unless_it_was_handed_over() {
    let check = |session: Session, handed_over: bool, takeovers: u32| {
        let change = take_over(&session, 5, HEIR, at(0)).unwrap();
        let becoming = Session {
            fence: Fence { epoch: 6, op: 9 },
            owner: Some("here".to_owned()),
            lease_is_over: false,
            takeovers,
            attempt: 4,
            next_seq: Seq(41),
            ..session
        };
        assert_eq!(change.session, becoming);
        assert_eq!(change.lease, Some(HEIR.lease));
        let position = StepPosition { step: 2, attempt: 4 };
        let event = Event::TurnRecovered { handed_over, takeovers };
        assert_eq!(change.events, [(position, event)]);
    };
    check(lapsed(), false, 2);
    check(handed_over(), true, 1);
}

#[test]
fn whoever_looks_at_overdue_calls_recovers_nothing() {
    let change = take_over(&waiting(2), 5, HEIR, at(101)).unwrap();
    assert_eq!(change.events, []);
    assert!(change.session.is_owned_by("here"));
    assert_eq!((change.session.takeovers, change.session.attempt), (1, 3));
    assert_eq!(change.session.wake_at, Some(at(100)));
}

#[test]
fn only_its_owner_gives_a_turn_back_or_adopts_it() {
    let turn = TurnId::new("turn");
    let check = |session: &Session, turn: &TurnId, epoch: i64, replica: &'static str, is: bool| {
        let case = format!("{session:?} {turn} {epoch} {replica}");
        let right = TurnFence { turn, fence: Fence { epoch, op: 9 } };
        assert_eq!(hand_over(session, right, replica).is_some(), is, "{case}");
        let released = release(session, turn, epoch, replica);
        assert_eq!(released.is_some(), is, "{case}");
        let heir = NewOwner { replica, ..HEIR };
        assert_eq!(adopt(session, turn, epoch, heir).is_some(), is, "{case}");
    };
    check(&running(), &turn, 5, "there", true);
    check(&lapsed(), &turn, 5, "there", true);
    check(&running(), &turn, 5, "here", false);
    check(&running(), &turn, 4, "there", false);
    check(&running(), &TurnId::new("another"), 5, "there", false);
    check(&handed_over(), &turn, 5, "there", false);
    check(&waiting(1), &turn, 5, "there", false);
}

#[test]
fn a_turn_that_is_given_back_is_free_at_once_and_its_fence_moves() {
    let session = running();
    let turn = TurnId::new("turn");
    let change = release(&session, &turn, 5, "there").unwrap();
    let becoming = Session {
        fence: Fence { epoch: 5, op: 10 },
        written_by: None,
        owner: None,
        lease_is_over: true,
        ..session.clone()
    };
    assert_eq!(change.session, becoming);
    assert_eq!(change.lease, Some(Duration::ZERO));
    let moved = TurnFence { turn: &turn, fence: Fence { epoch: 5, op: 8 } };
    assert_eq!(hand_over(&session, moved, "there"), None);
}

#[test]
fn a_turn_whose_task_failed_here_is_repeated_as_by_another_owner_that_counts() {
    let own = Session { owner: Some("here".to_owned()), ..running() };
    let turn = own.turn.clone().unwrap();
    let change = repeat(&own, &turn, 5, HEIR, at(0)).unwrap();
    let dead = Session { lease_is_over: true, ..own.clone() };
    assert_eq!(Some(&change), take_over(&dead, 5, HEIR, at(0)).as_ref());
    assert_eq!(change.session.takeovers, own.takeovers + 1);
    assert_eq!(repeat(&own, &turn, 4, HEIR, at(0)), None, "an older grant");
    assert_eq!(repeat(&own, &TurnId::new("other"), 5, HEIR, at(0)), None);
    let taken = Session { owner: Some("there".to_owned()), ..own };
    assert_eq!(repeat(&taken, &turn, 5, HEIR, at(0)), None, "it is another's");
}
