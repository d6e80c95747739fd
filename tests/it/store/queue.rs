//! Queued messages: queued once, applied once, or withdrawn with an event.

use std::time::Duration;

use contextd::{
    model::{MessageId, Seq, TurnId, command::TurnRequest},
    session::{
        SessionState,
        queue::MessageSelection,
        queue_rows::Withdrawal,
        take::{Advance, TakenMessage},
    },
    store::{
        idempotency::StoredRequest,
        queue::{Delivery, DropReason, Enqueued, NewQueued, QueueSnapshot, QueueState},
        written::{ConditionalWriteOutcome, WriteOutcome},
    },
};

use super::*;

#[tokio::test]
async fn enqueue_returns_the_rank_and_the_session_state() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    for (position, id) in (1..).zip(["q1", "q2", "q3"]) {
        let place = enqueue(&world.store, &key, id).await;
        assert_eq!(place.state, QueueState::Pending { position });
        assert_eq!((place.session_state, place.turn), (SessionState::Running, Some(grant.turn.clone())));
    }
    let first = MessageId::new("q1");
    let which = MessageSelection::These(std::slice::from_ref(&first));
    world.store.unqueue(&key, which, Withdrawal::Cancelled, b"", &unremembered()).await.unwrap();
    let waiting = world.store.queued(&key, 0, 10, i64::MAX).await.unwrap().items;
    let seen: Vec<_> = waiting.iter().map(|queued| (queued.message.as_str(), queued.state.clone())).collect();
    assert_eq!(seen, [("q2", QueueState::Pending { position: 1 }), ("q3", QueueState::Pending { position: 2 })]);
    let behind = world.store.queued(&key, waiting[0].cursor, 10, i64::MAX).await.unwrap().items;
    assert_eq!(behind[0].state, QueueState::Pending { position: 2 });
    let gone = world.store.queued_message(&key, &first).await.unwrap().unwrap();
    assert_eq!(gone.state, QueueState::Cancelled);
}

#[tokio::test]
async fn a_request_enqueues_once_and_its_repetition_gets_the_same_answer() {
    let world = World::new().await;
    let (key, _) = world.running("s").await;
    let first = MessageId::new("q1");
    let second = MessageId::new("q2");
    let same = request("r");
    let queued = placed(world.store.enqueue(&key, &asap(&first, &same), None).await.unwrap());
    let again = placed(world.store.enqueue(&key, &asap(&second, &same), None).await.unwrap());
    assert_eq!(queued, again);
    let other = Idempotency { hash: "another".to_owned(), ..same };
    assert_eq!(world.store.enqueue(&key, &asap(&second, &other), None).await.unwrap(), Enqueued::Mismatch);
    assert_eq!(world.store.queued(&key, 0, 10, i64::MAX).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn identical_requests_at_once_make_one_message_and_one_turn() {
    let world = World::new().await;
    let key = world.idle("s").await;
    let same = request("r");
    let turn_request = TurnRequest::default();
    let rows = opening_without_input();
    let world = &world;
    let key = &key;
    let places = futures_util::future::join_all((0..6).map(|n| {
        let same = &same;
        let turn_request = &turn_request;
        let rows = &rows;
        async move {
            let message = MessageId::new(format!("q{n}"));
            let turn = TurnId::new(format!("turn{n}"));
            let new = NewQueued { starts_turn: true, ..asap(&message, same) };
            let start = admission(&turn, rows, same, turn_request);
            placed(world.store.enqueue(key, &new, Some(&start)).await.unwrap())
        }
    }))
    .await;
    assert_eq!(places.iter().filter(|place| place.grant.is_some()).count(), 1);
    assert!(places.iter().all(|place| place.message == places[0].message && place.turn == places[0].turn));
    assert_eq!(world.number("select count(*) from queue where session_id = $1", key).await, 1);
    assert_eq!(world.number("select count(*) from turns where session_id = $1", key).await, 2);
    world.assert_dense(key).await;
}

#[tokio::test]
async fn an_execute_turn_that_ran_at_once_is_not_queued_when_it_is_repeated() {
    let world = World::new().await;
    let key = world.idle("s").await;
    let turn = TurnId::new("t2");
    let rows = opening("t2");
    let same = request("r");
    let turn_request = TurnRequest::default();
    world.store.admit(&key, &admission(&turn, &rows, &same, &turn_request)).await.unwrap().unwrap();
    let answer = world.store.enqueue(&key, &asap(&MessageId::new("q"), &same), None).await.unwrap();
    assert_eq!(answer, Enqueued::OtherEffect(StoredRequest { hash: same.hash.clone(), result: "t2".to_owned() }));
}

#[tokio::test]
async fn a_full_queue_a_missing_session_and_a_request_without_key_are_told_apart() {
    let world = World::new().await;
    let (key, _) = world.running("s").await;
    let none = unremembered();
    for id in ["q1", "q2"] {
        let id = MessageId::new(id);
        placed(world.store.enqueue(&key, &NewQueued { limit: 2, ..asap(&id, &none) }, None).await.unwrap());
    }
    let third = MessageId::new("q3");
    for idempotency in [unremembered(), request("r3")] {
        let new = NewQueued { limit: 2, ..asap(&third, &idempotency) };
        assert_eq!(world.store.enqueue(&key, &new, None).await.unwrap(), Enqueued::Full);
    }
    let nowhere = world.store.enqueue(&super::key("nowhere"), &asap(&third, &none), None).await.unwrap();
    assert_eq!(nowhere, Enqueued::NoSession);
    world.store.unqueue(&key, MessageSelection::All, Withdrawal::Cancelled, b"", &none).await.unwrap();
    let retry = request("r3");
    placed(world.store.enqueue(&key, &NewQueued { limit: 2, ..asap(&third, &retry) }, None).await.unwrap());
}

#[tokio::test]
async fn a_queued_message_is_applied_in_the_first_step_of_the_turn_it_starts() {
    let world = World::new().await;
    for (session, delivery) in [("a", Delivery::Asap), ("w", Delivery::WhenIdle), ("i", Delivery::Interrupt)] {
        let key = world.idle(session).await;
        let message = MessageId::new("q");
        let same = request("r");
        let turn_request = TurnRequest::default();
        let turn = TurnId::new("t2");
        let rows = opening_without_input();
        let new = NewQueued { delivery, starts_turn: true, ..asap(&message, &same) };
        let start = admission(&turn, &rows, &same, &turn_request);
        let place = placed(world.store.enqueue(&key, &new, Some(&start)).await.unwrap());
        let grant = place.grant.unwrap();
        assert_eq!((place.session_state, place.turn, &grant.turn), (SessionState::Running, Some(turn.clone()), &turn));
        let look = world.store.queue_snapshot(&key).await.unwrap().unwrap();
        assert_eq!((look.fence, look.last_seq, look.waiting.len()), (grant.fence, grant.last_seq, 1));
        let taken = take(&world.store, &key, grant.turn_fence(), look.last_seq, &["q"], false).await;
        assert!(
            matches!(taken, ConditionalWriteOutcome::Applied(ack) if ack.last_seq == Seq(look.last_seq.0 + 2)),
            "{taken:?}"
        );
        let queued = world.store.queued_message(&key, &message).await.unwrap().unwrap();
        assert_eq!(queued.state, QueueState::Applied(MessageId::new("from-q")));
        world.assert_dense(&key).await;
    }
}

#[tokio::test]
async fn without_a_turn_the_queue_is_taken_only_if_unchanged_since_the_read() {
    let world = World::new().await;
    let idle = world.idle("s").await;
    let (running, _) = world.running("r").await;
    let none = unremembered();
    let id = MessageId::new("q");
    for key in [&idle, &running] {
        placed(world.store.enqueue(key, &asap(&id, &none), None).await.unwrap());
    }
    let into = MessageId::new("from-q");
    let mut rows = Rows::new(ESTIMATOR, 0);
    rows.event(payloads::applied(into.as_str()), StepPosition::default());
    rows.message(message("from-q", Role::User, vec![part("queued words", 9, Category::User)]), StepPosition::default());
    let taken = [TakenMessage { message: &id, end: Ok(&into), event: 1 }];
    let look = world.store.queue_snapshot(&running).await.unwrap().unwrap();
    assert_eq!(world.store.take_idle(&running, &look, 1, &rows, &taken).await.unwrap(), None, "a turn runs");
    let look = world.store.queue_snapshot(&idle).await.unwrap().unwrap();
    let moved = QueueSnapshot { last_seq: Seq(look.last_seq.0 - 1), ..look.clone() };
    let another = QueueSnapshot { fence: Fence { epoch: look.fence.epoch + 1, ..look.fence }, ..look.clone() };
    for stale in [moved, another] {
        assert_eq!(world.store.take_idle(&idle, &stale, 1, &rows, &taken).await.unwrap(), None);
    }
    assert_eq!(world.store.take_idle(&idle, &look, 2, &rows, &taken).await.unwrap(), None, "another configuration");
    let last = world.store.take_idle(&idle, &look, 1, &rows, &taken).await.unwrap();
    assert_eq!(last, Some(Seq(look.last_seq.0 + 2)));
    let queued = world.store.queued_message(&idle, &id).await.unwrap().unwrap();
    assert_eq!(queued.state, QueueState::Applied(into.clone()));
    let lease = "select count(*) from session_run where session_id = $1 and lease_until > now()";
    assert_eq!(world.number(lease, &idle).await, 0, "nobody owns it");
    world.assert_dense(&idle).await;
}

#[tokio::test]
async fn a_message_for_after_the_turn_is_not_taken_during_it() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let message = MessageId::new("later");
    let none = unremembered();
    let new = NewQueued { delivery: Delivery::WhenIdle, starts_turn: true, ..asap(&message, &none) };
    placed(world.store.enqueue(&key, &new, None).await.unwrap());
    let look = world.store.queue_snapshot(&key).await.unwrap().unwrap();
    assert_eq!(look.waiting, []);
    assert_eq!(
        take(&world.store, &key, grant.turn_fence(), look.last_seq, &["later"], false).await,
        ConditionalWriteOutcome::Stale
    );
    let ack = applied(finish(&world.store, &key, grant.turn_fence(), Rows::new(ESTIMATOR, 0)).await);
    assert_eq!(ack.state, SessionState::Idle);
    let turn = TurnId::new("t2");
    let rows = opening_without_input();
    let turn_request = TurnRequest::default();
    let start = admission(&turn, &rows, &none, &turn_request);
    assert!(world.store.start_idle(&key, &MessageId::new("unknown"), &start).await.unwrap().is_none());
    assert!(world.store.start_idle(&key, &message, &start).await.unwrap().is_some());
    assert!(world.store.start_idle(&key, &message, &start).await.unwrap().is_none());
    assert_eq!(world.store.queue_snapshot(&key).await.unwrap().unwrap().waiting.len(), 1);
}

#[tokio::test]
async fn a_take_is_refused_by_a_cancel_an_open_call_a_withdrawal_and_an_old_fence() {
    let world = World::new().await;
    let (key, grant) = world.running("withdrawn").await;
    enqueue(&world.store, &key, "q1").await;
    enqueue(&world.store, &key, "q2").await;
    let look = world.store.queue_snapshot(&key).await.unwrap().unwrap();
    let first = MessageId::new("q1");
    let which = MessageSelection::These(std::slice::from_ref(&first));
    world.store.unqueue(&key, which, Withdrawal::Cancelled, b"", &unremembered()).await.unwrap();
    assert_eq!(
        take(&world.store, &key, grant.turn_fence(), look.last_seq, &["q1", "q2"], false).await,
        ConditionalWriteOutcome::Stale
    );
    let look = world.store.queue_snapshot(&key).await.unwrap().unwrap();
    assert_eq!(
        take(&world.store, &key, grant.turn_fence(), look.last_seq, &["q1", "q2"], false).await,
        ConditionalWriteOutcome::Stale
    );
    let old = Fence { epoch: grant.fence.epoch - 1, ..grant.fence };
    let old = TurnFence { fence: old, ..grant.turn_fence() };
    assert_eq!(take(&world.store, &key, old, look.last_seq, &["q2"], false).await, ConditionalWriteOutcome::Fenced);
    let ConditionalWriteOutcome::Applied(ack) =
        take(&world.store, &key, grant.turn_fence(), look.last_seq, &["q2"], true).await
    else {
        panic!("not taken");
    };
    assert_eq!(
        take(&world.store, &key, grant.turn_fence(), look.last_seq, &["q2"], true).await,
        ConditionalWriteOutcome::Applied(ack)
    );
    assert_eq!(world.number("select step::bigint from session_run where session_id = $1", &key).await, 2);
    assert_eq!(world.number("select count(*) from messages where session_id = $1", &key).await, 2);
    world.assert_dense(&key).await;

    let (key, grant) = world.running("cancelled").await;
    enqueue(&world.store, &key, "q1").await;
    let cause = contextd::model::CancelCause::Requested;
    let none = unremembered();
    world.replica("two").cancel(&key, None, cause, "", &none).await.unwrap();
    let look = world.store.queue_snapshot(&key).await.unwrap().unwrap();
    assert!(look.cancelled);
    assert_eq!(
        take(&world.store, &key, grant.turn_fence(), look.last_seq, &["q1"], false).await,
        ConditionalWriteOutcome::Stale
    );

    let (key, grant) = world.waiting("waiting", &["c1"]).await;
    enqueue(&world.store, &key, "q1").await;
    world
        .database
        .client()
        .await
        .execute("update session_run set version = version + 1, tool_deadline = 'epoch'", &[])
        .await
        .unwrap();
    let owner = world.store.takeover(&key, grant.fence.epoch).await.unwrap().unwrap();
    let look = world.store.queue_snapshot(&key).await.unwrap().unwrap();
    assert_eq!(look.open_calls, 1);
    assert_eq!(
        take(&world.store, &key, owner.turn_fence(), look.last_seq, &["q1"], false).await,
        ConditionalWriteOutcome::Stale
    );
}

#[tokio::test]
async fn a_take_may_drop_older_messages_for_a_newer_one() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    enqueue(&world.store, &key, "q1").await;
    enqueue(&world.store, &key, "q2").await;
    let look = world.store.queue_snapshot(&key).await.unwrap().unwrap();
    let old = MessageId::new("q1");
    let new = MessageId::new("q2");
    let into = MessageId::new("m");
    let mut rows = Rows::new(ESTIMATOR, 0);
    rows.event(payloads::dropped("q1"), at(1));
    let dropped = TakenMessage { message: &old, end: Err(DropReason::Superseded), event: rows.count() };
    rows.event(payloads::applied("m"), at(1));
    let kept = TakenMessage { message: &new, end: Ok(&into), event: rows.count() };
    rows.message(message("m", Role::User, vec![part("newer", 3, Category::User)]), at(1));
    let seen = Some(look.last_seq);
    let taken = [dropped, kept];
    let took = world.store.take(&key, grant.turn_fence(), seen, &rows, &taken, Advance::Stay).await.unwrap();
    assert!(matches!(took, ConditionalWriteOutcome::Applied(_)));
    let state = |id| world.store.queued_message(&key, id);
    assert_eq!(state(&old).await.unwrap().unwrap().state, QueueState::Dropped(DropReason::Superseded));
    assert_eq!(state(&new).await.unwrap().unwrap().state, QueueState::Applied(into.clone()));
    let sql = "select count(*) from queue q join events e using (tenant_id, session_id, seq)
                where session_id = $1 and e.kind = case q.status when 1 then 'messages_applied' else 'queued_message_dropped' end";
    assert_eq!(world.number(sql, &key).await, 2);
}

#[tokio::test]
async fn withdrawn_messages_get_an_event_each_and_only_expired_ones_expire() {
    let world = World::new().await;
    let key = world.idle("s").await;
    let none = unremembered();
    for (id, ttl) in [("q1", None), ("q2", Some(Duration::ZERO)), ("q3", Some(Duration::from_secs(600)))] {
        let id = MessageId::new(id);
        placed(world.store.enqueue(&key, &NewQueued { ttl, ..asap(&id, &none) }, None).await.unwrap());
    }
    let expired: Vec<bool> =
        world.store.queued(&key, 0, 10, i64::MAX).await.unwrap().items.iter().map(|q| q.expired).collect();
    assert_eq!(expired, [false, true, false]);
    let gone = world.store.unqueue(&key, MessageSelection::All, Withdrawal::Expired, b"", &none).await.unwrap();
    assert_eq!(gone.messages, [MessageId::new("q2")]);
    let clear = request("clear");
    let gone = world.store.unqueue(&key, MessageSelection::All, Withdrawal::Cancelled, b"", &clear).await.unwrap();
    assert_eq!(gone.messages, [MessageId::new("q1"), MessageId::new("q3")]);
    enqueue(&world.store, &key, "q4").await;
    let again = world.store.unqueue(&key, MessageSelection::All, Withdrawal::Cancelled, b"", &clear).await.unwrap();
    assert_eq!((again.messages, again.last_seq), (gone.messages, None));
    assert_eq!(world.store.queued(&key, 0, 10, i64::MAX).await.unwrap().items.len(), 1);
    let sql = "select count(*) from queue q join events e using (tenant_id, session_id, seq)
                where session_id = $1 and e.refs = array[q.message_id::text] and e.turn_id is null
                  and e.kind = case q.status when 2 then 'queued_message_cancelled' else 'queued_message_expired' end";
    assert_eq!(world.number(sql, &key).await, 3);
    world.assert_dense(&key).await;
}

#[tokio::test]
async fn a_turn_end_lists_pending_messages_and_a_failed_turn_starts_no_next_turn() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let none = unremembered();
    for (id, execute) in [("q1", None), ("q2", Some(b"request".as_slice()))] {
        let id = MessageId::new(id);
        let new = NewQueued { starts_turn: true, execute, ..asap(&id, &none) };
        placed(world.store.enqueue(&key, &new, None).await.unwrap());
    }
    let failure = Ending::Cancelled {
        cause: contextd::model::CancelCause::Requested,
        outcome: contextd::model::CancelOutcome::None,
        reason: String::new(),
        undone: None,
    };
    let rows = Rows::new(ESTIMATOR, 0);
    let result = TurnResult::default();
    let cost = StepCost::default();
    let written = world.store.stop(&key, grant.turn_fence(), &rows, &cost, &end(&failure, &result)).await.unwrap();
    assert!(matches!(written, WriteOutcome::Applied(ack) if ack.state == SessionState::Idle));
    let sql = "select count(*) from events where session_id = $1 and kind = 'turn_cancelled' and refs = '{q1,q2}'";
    assert_eq!(world.number(sql, &key).await, 1);
    let starts: Vec<bool> =
        world.store.queued(&key, 0, 10, i64::MAX).await.unwrap().items.iter().map(|q| q.starts_turn).collect();
    assert_eq!(starts, [false, true]);
}
