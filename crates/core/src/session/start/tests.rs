//! Tests of what a turn requires to start, and of its initial state.

use super::*;
use crate::{
    model::{
        CancelCause, Delivery, Fence, StepPosition, TokenBasis, TokenCount, command::TurnRequest, event::StepStarted,
    },
    session::{
        CancelRequest, QueuedMessage,
        samples::{answer_rows, asap, at, running, waiting, when_idle},
    },
};

const HEIR: NewOwner<'static> = NewOwner { replica: "here", lease: Duration::from_secs(15) };

/// An idle session after a turn that was cancelled in its second step.
fn idle() -> Session {
    Session {
        state: SessionState::Idle,
        cancel: Some(CancelRequest { cause: CancelCause::Requested, reason: "enough".to_owned(), rollback: false }),
        wake_at: Some(at(7)),
        ..waiting(0)
    }
}

fn starter(message: &str) -> QueuedMessage {
    QueuedMessage { starts_turn: true, ..asap(message) }
}

/// Starts a turn with these rows by `begin`.
fn begun<T>(rows: &Rows, revision: i64, begin: impl Fn(&NewTurn<'_>) -> T) -> T {
    let turn = TurnId::new("next");
    let request = TurnRequest::default();
    begin(&NewTurn {
        turn: &turn,
        rows,
        timeout: Duration::from_secs(600),
        revision,
        row: TurnRow { request_id: None, request: &request, model: "scripted/demo" },
    })
}

fn admitted(session: &Session, revision: i64, opening: StartFrom) -> Option<Session> {
    begun(&answer_rows(20), revision, |new| admit(session, new, opening, HEIR).map(|change| change.session))
}

fn started(session: &Session, message: &str) -> Option<Session> {
    let message = MessageId::new(message);
    begun(&answer_rows(20), 7, |new| start_for(session, &message, new, HEIR).map(|change| change.session))
}

#[test]
fn a_turn_begins_only_in_an_idle_session_of_the_configuration_it_was_made_for() {
    let check = |what: &str, session: &Session, revision, expected: bool| {
        let becoming = admitted(session, revision, StartFrom::Input);
        assert_eq!(becoming.is_some(), expected, "{what}");
    };
    check("idle", &idle(), 7, true);
    check("another configuration", &idle(), 6, false);
    check("a newer configuration", &idle(), 8, false);
    check("a turn runs", &running(), 7, false);
    check("a turn waits", &waiting(1), 7, false);
    let open = Session { open_calls: 1, ..idle() };
    check("calls that a host appended are open", &open, 7, false);
    let deleted = Session { state: SessionState::Deleted, ..idle() };
    check("deleted", &deleted, 7, false);
}

#[test]
fn a_turn_that_goes_on_from_the_transcript_needs_something_to_answer() {
    let check = |queue: Vec<QueuedMessage>, opening, expected: bool| {
        let session = Session { queue, ..idle() };
        assert_eq!(admitted(&session, 7, opening).is_some(), expected, "{opening:?} {session:?}");
    };
    check(Vec::new(), StartFrom::Question, true);
    check(Vec::new(), StartFrom::Answered, false);
    check(vec![when_idle("later")], StartFrom::Answered, true);
    check(Vec::new(), StartFrom::Input, true);
}

#[test]
fn a_turn_has_its_owner_its_epoch_and_its_time_and_nothing_of_the_one_before() {
    let session = idle();
    let rows = answer_rows(20);
    begun(&rows, 7, |new| {
        let change = admit(&session, new, StartFrom::Input, HEIR).expect("it is idle");
        let becoming = &change.session;
        assert_eq!(becoming.state, SessionState::Running);
        assert_eq!(becoming.owner.as_deref(), Some("here"));
        assert_eq!(becoming.fence, Fence { epoch: 6, op: 9 });
        assert_eq!(becoming.turn.as_ref(), Some(new.turn));
        assert_eq!((becoming.takeovers, &becoming.cancel), (0, &None));
        assert_eq!((becoming.step, becoming.attempt), (0, 0));
        assert_eq!((becoming.open_calls, becoming.wake_at), (0, None));
        assert_eq!(change.turn_ends_within, Some(new.timeout));
        assert_eq!(change.lease, Some(HEIR.lease));
        assert_eq!(change.turn_id.as_ref(), Some(new.turn));
        assert_eq!(change.begins, Some(new.row));
        assert!(change.is_use);
    });
}

#[test]
fn the_first_step_begins_with_the_turn_where_its_rows_say_so() {
    let mut rows = answer_rows(20);
    let first = StepStarted {
        model: "scripted/demo".to_owned(),
        revision: 7,
        context: TokenCount { tokens: 20, basis: TokenBasis::Tokenizer, margin: 0, estimator: String::new() },
        window: 0,
        reserve: 0,
    };
    rows.event(Payload::StepStarted(first), StepPosition::default());
    begun(&rows, 7, |new| {
        let change = admit(&idle(), new, StartFrom::Input, HEIR).expect("it is idle");
        assert_eq!((change.session.step, change.session.attempt), (1, 1));
    });
}

#[test]
fn a_message_starts_a_turn_if_it_waits_and_asks_for_one() {
    let session = Session { queue: vec![asap("quiet"), starter("starts")], ..idle() };
    assert!(started(&session, "starts").is_some());
    assert_eq!(started(&session, "quiet"), None);
    assert_eq!(started(&session, "gone"), None);
    let busy = Session { state: SessionState::Running, ..session };
    assert_eq!(started(&busy, "starts"), None);
}

#[test]
fn what_waited_for_the_end_of_a_turn_is_taken_by_the_one_that_begins() {
    let session = Session { queue: vec![when_idle("later"), starter("now"), when_idle("last")], ..idle() };
    let rows = answer_rows(20);
    begun(&rows, 7, |new| {
        let change = admit(&session, new, StartFrom::Input, HEIR).expect("it is idle");
        let hurried = ["later", "last"].map(MessageId::new);
        assert_eq!(change.queue.promoted_to_asap, hurried);
        let queue = &change.session.queue;
        assert!(queue.iter().all(|it| it.delivery == Delivery::Asap));
        assert_eq!(queue.len(), 3, "they wait until they are taken");
    });
}
