//! Tests of the queue: enqueueing, the effect of an interrupt on the turn, and withdrawing.

use std::time::Duration;

use super::*;
use crate::{
    model::{DropReason, Fence, RequestId, TurnId},
    session::{
        SessionState,
        samples::{asap, at, running, waiting, when_idle},
    },
};

const HEIR: NewOwner<'static> = NewOwner { replica: "here", lease: Duration::from_secs(15) };

fn joining<'a>(message: &'a MessageId, delivery: Delivery) -> NewQueuedMessage<'a> {
    NewQueuedMessage {
        message,
        body: b"words",
        blobs: &[],
        delivery,
        starts_turn: true,
        execute: None,
        ttl: None,
        request: None,
    }
}

fn joined(session: &Session, delivery: Delivery, most: usize) -> Option<Session> {
    let message = MessageId::new("new");
    let change = enqueue(session, joining(&message, delivery), most, HEIR)?;
    assert_eq!(change.queue.added.map(|it| it.message), Some(&message));
    assert!(change.events.is_empty(), "it waits without an event");
    Some(change.session)
}

#[test]
fn a_message_comes_behind_those_that_wait_until_as_many_wait_as_may() {
    let one = Session { queue: vec![asap("first")], ..running() };
    let becoming = joined(&one, Delivery::Asap, 2).expect("there is room");
    let ids = becoming.queue.iter().map(|it| it.message.as_str());
    assert_eq!(ids.collect::<Vec<_>>(), ["first", "new"]);
    assert!(becoming.queue[1].starts_turn);
    assert_eq!(Session { queue: one.queue.clone(), ..becoming }, one, "nothing else changes");
    for most in [0, 1] {
        assert_eq!(joined(&one, Delivery::Asap, most), None, "{most}");
    }
}

#[test]
fn only_a_message_that_interrupts_cancels_the_turn_that_runs() {
    let check = |session: Session, delivery, cancels: bool, fence: (i64, i64), owner| {
        let becoming = joined(&session, delivery, 10).expect("there is room");
        let cause = becoming.cancel.map(|cancel| cancel.cause);
        assert_eq!(cause, cancels.then_some(CancelCause::Interrupted));
        let (epoch, op) = fence;
        assert_eq!(becoming.fence, Fence { epoch, op }, "{session:?}");
        assert_eq!(becoming.owner.as_deref(), owner, "{session:?}");
    };
    let idle = Session { state: SessionState::Idle, ..waiting(0) };
    check(running(), Delivery::Asap, false, (5, 9), Some("there"));
    check(running(), Delivery::WhenIdle, false, (5, 9), Some("there"));
    check(running(), Delivery::Interrupt, true, (5, 9), Some("there"));
    // The turn has no owner: the replica that handles the interrupt ends it.
    check(waiting(1), Delivery::Interrupt, true, (6, 9), Some("here"));
    check(idle, Delivery::Interrupt, false, (5, 9), None);
}

#[test]
fn a_message_for_the_end_of_the_turn_does_not_hold_it_up() {
    let check = |queue: Vec<QueuedMessage>, expected| {
        let session = Session { queue, ..running() };
        assert_eq!(session.has_messages_for_turn(), expected, "{session:?}");
    };
    check(Vec::new(), false);
    check(vec![when_idle("later")], false);
    check(vec![when_idle("later"), asap("now")], true);
    let interrupts = QueuedMessage { delivery: Delivery::Interrupt, ..asap("interrupts") };
    check(vec![interrupts], true);
}

#[test]
fn messages_are_withdrawn_in_order_with_an_event_each_outside_of_steps() {
    let late = QueuedMessage { expires_at: Some(at(50)), ..asap("late") };
    let later = QueuedMessage { expires_at: Some(at(60)), ..asap("later") };
    let session = Session { queue: vec![late, asap("a"), later, asap("b")], ..running() };
    let ids = |ids: &[&str]| -> Vec<MessageId> { ids.iter().map(|id| MessageId::new(*id)).collect() };
    let check = |which: MessageSelection<'_>, why, now, gone: &[&str], left: &[&str]| {
        let change = withdraw(&session, which, why, b"payload", at(now));
        let Some(change) = change else {
            assert!(gone.is_empty(), "{which:?} {why:?} at {now}");
            return;
        };
        let leave = change.queue.removed.iter();
        let found: Vec<(&str, usize)> = leave.map(|it| (it.message.as_str(), it.event)).collect();
        let expected: Vec<(&str, usize)> = gone.iter().copied().zip(0..).collect();
        assert_eq!(found, expected, "{which:?} {why:?} at {now}");
        for (leaving, (place, event)) in change.queue.removed.iter().zip(&change.events) {
            assert_eq!(leaving.end, QueueEnd::Withdrawn(why));
            assert_eq!(*place, StepPosition::default());
            let message = leaving.message.clone();
            let payload = b"payload".to_vec();
            assert_eq!(*event, Event::Withdrawn { message, why, payload });
        }
        assert_eq!(change.session.waiting(), ids(left));
        let events = i64::try_from(gone.len()).unwrap();
        assert_eq!(change.session.next_seq.0, session.next_seq.0 + events);
        assert_eq!(change.turn_id, Some(TurnId::new("turn")));
    };
    let some = ids(&["b", "late", "unknown"]);
    let all = MessageSelection::All;
    let cancelled = Withdrawal::Cancelled;
    check(all, cancelled, 0, &["late", "a", "later", "b"], &[]);
    check(MessageSelection::These(&some), cancelled, 0, &["late", "b"], &["a", "later"]);
    let dropped = Withdrawal::Dropped(DropReason::Unreadable);
    check(MessageSelection::These(&some[2..]), dropped, 0, &[], &[]);
    // Messages without a time to live never expire.
    let expired = Withdrawal::Expired;
    check(all, expired, 50, &[], &[]);
    check(all, expired, 51, &["late"], &["a", "later", "b"]);
    check(all, expired, 61, &["late", "later"], &["a", "b"]);
    check(MessageSelection::These(&some), expired, 61, &["late"], &["a", "later", "b"]);
}

#[test]
fn what_is_withdrawn_after_a_turn_belongs_to_none() {
    let idle = Session { state: SessionState::Idle, queue: vec![asap("a")], ..waiting(0) };
    let change = withdraw(&idle, MessageSelection::All, Withdrawal::Cancelled, b"", at(0));
    assert_eq!(change.map(|change| change.turn_id), Some(None));
}

#[test]
fn a_message_is_stored_with_the_request_that_brought_it() {
    let request = RequestId::new("r");
    let message = MessageId::new("new");
    let joining =
        NewQueuedMessage { request: Some(&request), execute: Some(b"turn"), ..joining(&message, Delivery::Asap) };
    let change = enqueue(&running(), joining, 1, HEIR).expect("there is room");
    assert_eq!(change.queue.added, Some(joining));
    assert!(change.session.queue[0].of_execute);
}
