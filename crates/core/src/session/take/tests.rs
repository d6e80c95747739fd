//! Tests of takes: their effect, and each guard that rejects one.

use std::time::Duration;

use super::*;
use crate::{
    model::{CancelCause, CompactionId, Delivery},
    session::{
        CancelRequest,
        compaction_rows::RunningCompaction,
        samples::{answer_rows, asap, measured, running, waiting, when_idle},
    },
};

const OWNER: Owner<'static> = Owner { replica: "there", lease: Duration::from_secs(15) };

/// A session in which `a` and `b` are queued, and `later` is queued for the end of the turn.
fn with_queue(session: Session) -> Session {
    Session { queue: vec![asap("a"), when_idle("later"), asap("b")], ..session }
}

fn idle() -> Session {
    with_queue(Session { state: SessionState::Idle, ..waiting(0) })
}

fn cancelled() -> Option<CancelRequest> {
    Some(CancelRequest { cause: CancelCause::Requested, reason: String::new(), rollback: false })
}

/// A take of these messages without the check of the seq.
fn blind<'a>(rows: &'a Rows, taken: &'a [TakenMessage<'a>]) -> TakeSelection<'a> {
    TakeSelection { seen: None, rows, taken }
}

struct Messages(Vec<MessageId>, MessageId);

impl Messages {
    fn new(ids: &[&str]) -> Self {
        let ids = ids.iter().map(|id| MessageId::new(*id));
        Self(ids.collect(), MessageId::new("user"))
    }

    fn taken(&self) -> Vec<TakenMessage<'_>> {
        let Self(ids, into) = self;
        ids.iter().map(|message| TakenMessage { message, end: Ok(into), event: 1 }).collect()
    }
}

#[test]
fn what_is_taken_waits_no_longer_and_is_in_the_transcript() {
    let rows = answer_rows(20);
    let messages = Messages::new(&["a"]);
    let dropped = MessageId::new("b");
    let mut taken = messages.taken();
    taken.push(TakenMessage { message: &dropped, end: Err(DropReason::Superseded), event: 2 });
    let session = with_queue(running());
    let taking = TakeSelection { seen: Some(session.last_seq()), rows: &rows, taken: &taken };
    let change = take(&session, &taking, Advance::Stay, OWNER).expect("nothing moved");
    assert_eq!(change.session.queue, [when_idle("later")]);
    assert_eq!(change.rows, Some(&rows));
    assert_eq!(
        change.queue.removed,
        [
            RemovedMessage { message: MessageId::new("a"), end: QueueEnd::Applied(MessageId::new("user")), event: 0 },
            RemovedMessage {
                message: dropped.clone(),
                end: QueueEnd::Withdrawn(Withdrawal::Dropped(DropReason::Superseded)),
                event: 1,
            },
        ]
    );
    assert_eq!(change.session.fence, session.fence.next());
    assert_eq!(change.session.context_tokens(), 1_000 + rows.shift().size());
    assert_eq!(change.lease, Some(OWNER.lease));
}

#[test]
fn a_take_begins_the_next_step_if_it_is_made_for_the_configuration_in_force() {
    let rows = answer_rows(20);
    let messages = Messages::new(&["a"]);
    let taken = messages.taken();
    let taking = blind(&rows, &taken);
    let check = |step, expected: Option<(u32, u32)>| {
        let change = take(&with_queue(running()), &taking, step, OWNER);
        let found = change.map(|change| (change.session.step, change.session.attempt));
        assert_eq!(found, expected, "{step:?}");
    };
    check(Advance::Stay, Some((2, 3)));
    check(Advance::AnyRevision, Some((3, 1)));
    check(Advance::IfRevision(7), Some((3, 1)));
    check(Advance::IfRevision(6), None);
    check(Advance::IfRevision(8), None);
}

#[test]
fn each_thing_that_moved_refuses_a_take() {
    let rows = answer_rows(20);
    let check = |what: &str, session: &Session, seen: Option<i64>, ids: &[&str], expected: bool| {
        let messages = Messages::new(ids);
        let taking = TakeSelection { seen: seen.map(Seq), rows: &rows, taken: &messages.taken() };
        let change = take(session, &taking, Advance::Stay, OWNER);
        assert_eq!(change.is_some(), expected, "{what}");
    };
    let session = with_queue(running());
    check("nothing moved", &session, Some(39), &["a", "b"], true);
    check("an event since", &session, Some(38), &["a"], false);
    check("an event since, without a look", &session, None, &["a"], true);
    check("it waits no longer", &session, None, &["a", "gone"], false);
    check("it waits for the end of the turn", &session, None, &["later"], false);
    let open = Session { open_calls: 1, ..session.clone() };
    check("between a call and its result", &open, None, &["a"], false);
    let cancelled = Session { cancel: cancelled(), ..session };
    check("the turn is to end", &cancelled, None, &["a"], false);
}

#[test]
fn an_idle_session_takes_what_it_was_looked_at_with_and_is_another_context_then() {
    let rows = answer_rows(20);
    let messages = Messages::new(&["a", "b"]);
    let check = |what: &str, session: Session, revision, seen, expected: bool| {
        let taking = TakeSelection { seen: Some(Seq(seen)), rows: &rows, taken: &messages.taken() };
        let fence = Fence { epoch: 5, op: 9 };
        let change = take_idle(&session, fence, revision, &taking);
        assert_eq!(change.is_some(), expected, "{what}");
        let Some(change) = change else { return };
        assert_eq!(change.session.context_version, session.context_version + 1);
        assert_eq!(change.session.fence, fence, "nobody owns it");
        assert_eq!((change.lease, change.turn_id), (None, None));
    };
    check("as it was", idle(), 7, 39, true);
    check("another configuration", idle(), 6, 39, false);
    check("an event since", idle(), 7, 38, false);
    check("a turn runs", with_queue(running()), 7, 39, false);
    let ran = Session { fence: Fence { epoch: 6, op: 9 }, ..idle() };
    check("a turn ran", ran, 7, 39, false);
    let open = Session { open_calls: 1, ..idle() };
    check("a call without a result", open, 7, 39, false);
}

#[test]
fn what_an_idle_session_measured_stays_true_of_the_context_that_it_measured() {
    let rows = answer_rows(20);
    let messages = Messages::new(&["a"]);
    let taken = messages.taken();
    let taking = blind(&rows, &taken);
    let check = |version, expected| {
        let session = Session { anchor: Some(measured("model", version, 100)), ..idle() };
        let change = take_idle(&session, session.fence, 7, &taking).expect("as it was");
        let anchor = change.session.anchor.expect("it was measured");
        assert_eq!(anchor.version, expected);
    };
    check(3, 4);
    check(2, 2);
}

#[test]
fn a_compaction_that_is_being_made_stands_for_messages_before_those_that_an_idle_session_takes() {
    let rows = answer_rows(20);
    let messages = Messages::new(&["a"]);
    let taken = messages.taken();
    let taking = blind(&rows, &taken);
    let check = |context_version, expected| {
        let running = RunningCompaction { id: CompactionId::new("k"), context_version, lease_is_over: false };
        let session = Session { compaction: Some(running), ..idle() };
        let change = take_idle(&session, session.fence, 7, &taking).expect("as it was");
        let running = change.session.compaction.expect("it is being made");
        assert_eq!(running.context_version, expected);
    };
    check(3, 4);
    check(2, 2);
}

#[test]
fn a_message_that_interrupts_is_taken_as_well() {
    let rows = answer_rows(20);
    let messages = Messages::new(&["a"]);
    let taken = messages.taken();
    let taking = blind(&rows, &taken);
    let session = Session { queue: vec![QueuedMessage { delivery: Delivery::Interrupt, ..asap("a") }], ..running() };
    let change = take(&session, &taking, Advance::Stay, OWNER).expect("it waits");
    assert_eq!(change.session.queue, []);
}
