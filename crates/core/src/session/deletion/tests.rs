//! Tests of deletion: what prevents it, and the state that it leaves.

use super::*;
use crate::{
    model::{
        CallId, CancelOutcome, Ending, MessageId, ToolExecutor, TurnResult,
        event::{CallCancelReason, WaitsFor},
    },
    session::{
        change::SyntheticResult,
        samples::{asap, event_summaries, running, waiting, when_idle},
    },
};

const STAY: Duration = Duration::from_secs(60);

fn ending() -> Ending {
    Ending::Cancelled {
        cause: CancelCause::SessionDeleted,
        outcome: CancelOutcome::ToolsInProgress,
        reason: String::new(),
        undone: None,
    }
}

fn call() -> OpenCall {
    OpenCall {
        id: CallId::new("c"),
        tool: "look".to_owned(),
        step: 2,
        position: 0,
        results: MessageId::new("results"),
        waits_for: WaitsFor::Result { edited: false },
        deadline: None,
        timeout: STAY,
        request: None,
        executor: ToolExecutor::Host,
    }
}

fn idle() -> Session {
    Session { state: SessionState::Idle, ..waiting(0) }
}

/// The state after deleting a session that was read in this state.
fn deleted<T>(session: &Session, seen: &Session, revision: Option<i64>, look: impl Fn(&Change<'_>) -> T) -> Option<T> {
    let (ending, result) = (ending(), TurnResult::default());
    let end = TurnEnd {
        ending: &ending,
        result: &result,
        synthetic: SyntheticResult { text: "closed", tokens: 7, overhead: 4, reason: CallCancelReason::TurnCancelled },
    };
    let open = vec![call(); usize::try_from(session.open_calls).unwrap()];
    let deletion = Deletion {
        fence: seen.fence,
        turn: seen.live_turn().map(|turn| (turn, end)),
        revision,
        dropped: b"dropped",
        stay: STAY,
    };
    delete(session, &open, &deletion).as_ref().map(look)
}

#[test]
fn a_session_is_deleted_as_it_was_seen_or_not_at_all() {
    let check = |what: &str, session: &Session, seen: &Session, revision, expected: bool| {
        let deleted = deleted(session, seen, revision, |_| ());
        assert_eq!(deleted.is_some(), expected, "{what}");
    };
    check("idle", &idle(), &idle(), None, true);
    check("a turn runs", &running(), &running(), None, true);
    check("its revision", &idle(), &idle(), Some(7), true);
    check("another revision", &idle(), &idle(), Some(6), false);
    check("a turn began", &running(), &idle(), None, false);
    check("the turn ended", &idle(), &running(), None, false);
    let other = Session { fence: Fence { epoch: 6, op: 9 }, ..running() };
    check("another owner", &other, &running(), None, false);
    let further = Session { fence: Fence { epoch: 5, op: 10 }, ..running() };
    check("the turn went on", &further, &running(), None, false);
    let gone = Session { state: SessionState::Deleted, ..idle() };
    check("it is deleted", &gone, &idle(), None, false);
}

#[test]
fn whatever_waits_is_dropped_and_whatever_runs_is_closed_before_the_turn_ends() {
    let session = Session { queue: vec![asap("a"), when_idle("b")], ..waiting(1) };
    deleted(&session, &session, None, |change| {
        let expected = [
            "withdrawn a at 0.0",
            "withdrawn b at 0.0",
            "closed c of look at 2.3",
            "committed results at 2.3",
            "end, 0 wait at 2.3",
        ];
        assert_eq!(event_summaries(&change.events), expected);
        let left: Vec<usize> = change.queue.removed.iter().map(|it| it.event).collect();
        assert_eq!(left, [0, 1]);
        let becoming = &change.session;
        assert_eq!(becoming.state, SessionState::Deleted);
        assert_eq!(becoming.fence, Fence { epoch: 6, op: 9 }, "its owner is fenced");
        assert_eq!((becoming.open_calls, becoming.queue.len()), (0, 0));
        assert_eq!(change.lease, Some(STAY));
        assert!(change.deletes && !change.is_use);
    })
    .expect("nothing moved");
}

#[test]
fn a_turn_is_seized_once_for_a_session_that_is_to_be_deleted() {
    let heir = NewOwner { replica: "here", lease: STAY };
    let check = |what: &str, session: &Session, revision, expected: bool| {
        let change = take_over_for_deletion(session, revision, heir);
        assert_eq!(change.is_some(), expected, "{what}");
        let Some(Change { session: seized, .. }) = change else {
            return;
        };
        assert!(seized.is_owned_by("here"), "{what}");
        assert_eq!(seized.fence.epoch, session.fence.epoch + 1, "{what}");
        let again = take_over_for_deletion(&seized, revision, heir);
        assert_eq!(again, None, "{what}: once");
    };
    check("a turn runs", &running(), None, true);
    check("a turn waits", &waiting(1), Some(7), true);
    check("another revision", &running(), Some(8), false);
    check("nothing runs", &idle(), None, false);
    let cancelled = Session {
        cancel: Some(CancelRequest { cause: CancelCause::Requested, reason: "enough".to_owned(), rollback: true }),
        ..running()
    };
    check("another cancel", &cancelled, None, true);
}

#[test]
fn a_session_is_unused_after_the_shorter_of_both_times() {
    let seconds = Duration::from_secs;
    let check = |unused, limit, own: Option<u64>, expected: bool| {
        let found = is_unused(&idle(), seconds(unused), seconds(limit), own.map(seconds));
        assert_eq!(found, expected, "{unused} {limit} {own:?}");
    };
    check(11, 10, None, true);
    check(10, 10, None, false);
    check(11, 20, Some(10), true);
    check(11, 10, Some(20), true);
    check(9, 10, Some(20), false);
    let busy = is_unused(&running(), seconds(99), seconds(1), None);
    assert!(!busy, "a turn is a use");
}
