//! Tests of cancels: which turn they apply to, and which replica ends it.

use super::*;
use crate::{
    model::CancelCause,
    session::{
        SessionState,
        samples::{running, waiting},
    },
};

const LEASE: Duration = Duration::from_secs(15);

fn request(rollback: bool) -> CancelRequest {
    CancelRequest { cause: CancelCause::Requested, reason: "enough".to_owned(), rollback }
}

fn cancelled(session: &Session, before: Option<&EarlierCancel>) -> Option<Change<'static>> {
    let request = request(false);
    let cancel = Cancel { turn: None, request: &request, replica: "here", lease: LEASE };
    apply(session, &cancel, before)
}

#[test]
fn a_turn_that_somebody_runs_is_told_to_stop() {
    let session = running();
    let change = cancelled(&session, None).unwrap();
    let told = Session { cancel: Some(request(false)), ..session };
    assert_eq!((change.session, change.lease), (told, None));
    assert_eq!(change.events, []);
}

#[test]
fn who_cancels_a_turn_without_an_owner_becomes_its_owner() {
    let check = |session: Session| {
        let change = cancelled(&session, None).unwrap();
        let epoch = session.fence.epoch + 1;
        assert_eq!(change.session.fence.epoch, epoch, "{session:?}");
        assert!(change.session.is_owned_by("here"), "{session:?}");
        assert_eq!(change.lease, Some(LEASE), "{session:?}");
        assert_eq!((change.session.takeovers, change.session.attempt), (session.takeovers, session.attempt));
    };
    check(waiting(2));
    check(Session { lease_is_over: true, ..running() });
    check(Session { owner: None, lease_is_over: true, ..running() });
}

#[test]
fn no_turn_is_cancelled_where_none_is_live_or_another_one_is_meant() {
    let idle = Session { state: SessionState::Idle, owner: None, ..running() };
    let deleted = Session { state: SessionState::Deleted, ..idle.clone() };
    assert_eq!(cancelled(&idle, None), None);
    assert_eq!(cancelled(&deleted, None), None);
    let request = request(false);
    let of = |turn: &str| {
        let cancel = Cancel { turn: Some(&TurnId::new(turn)), request: &request, replica: "here", lease: LEASE };
        apply(&running(), &cancel, None)
    };
    assert_eq!(of("another"), None);
    assert!(of("turn").is_some());
}

#[test]
fn a_repeated_request_reaches_the_turn_that_it_reached_first_and_no_other() {
    let check = |before: EarlierCancel, expected: bool| {
        let reaches = cancelled(&running(), Some(&before)).is_some();
        assert_eq!(reaches, expected, "{before:?}");
    };
    check(EarlierCancel::AppliedTo(Some(TurnId::new("turn"))), true);
    check(EarlierCancel::AppliedTo(Some(TurnId::new("another"))), false);
    check(EarlierCancel::AppliedTo(None), false);
    check(EarlierCancel::Other, false);
}

#[test]
fn the_first_cancel_says_why_and_a_later_one_may_take_the_messages_back() {
    let first = CancelRequest { cause: CancelCause::Disconnected, reason: "nobody reads".to_owned(), rollback: false };
    let check = |before: bool, wish: bool, rollback: bool| {
        let session = Session { cancel: Some(CancelRequest { rollback: before, ..first.clone() }), ..running() };
        let cancel = Cancel { turn: None, request: &request(wish), replica: "here", lease: LEASE };
        let change = apply(&session, &cancel, None).unwrap();
        let expected = CancelRequest { rollback, ..first.clone() };
        assert_eq!(change.session.cancel, Some(expected));
    };
    check(false, false, false);
    check(false, true, true);
    check(true, false, true);
}
