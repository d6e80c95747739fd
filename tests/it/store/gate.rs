//! Enqueueing or withdrawing a message concurrently with the end of the turn: if the response to an enqueue says that
//! turn T is running, the message is in T, or T has not ended.

use contextd::{session::SessionState, store::written::ConditionalWriteOutcome};

use super::*;
use crate::protocol::guards::without_version;

/// The state of the session, and the number of pending messages.
async fn state_and_waiting(world: &World, key: &SessionKey) -> (SessionState, usize) {
    let look = world.store.queue_snapshot(key).await.unwrap().unwrap();
    (look.state, look.waiting.len())
}

/// A write of the session by another replica that is not committed yet.
async fn uncommitted(world: &World, sql: &str) -> tokio_postgres::Client {
    let client = world.database.client().await;
    client.batch_execute(&format!("begin; {sql}")).await.unwrap();
    client
}

/// Queues a message. A write of the queue also writes the session.
const ENQUEUE: &str = "update session_run set version = version + 1, op = op where session_id = 's';
    insert into queue (tenant_id, session_id, message_id, body) values ('t', 's', 'q', '')";

/// Withdraws all pending messages.
const WITHDRAW: &str = "insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
    select r.tenant_id, r.session_id, r.next_seq, r.epoch, r.turn_id, 0, 0, 'queued_message_cancelled', array[q.message_id], ''
      from session_run r join queue q using (tenant_id, session_id) where r.session_id = 's' and q.status = 0;
    update queue q set status = 2, ended_at = now(), seq = r.next_seq from session_run r where q.session_id = 's' and r.session_id = 's';
    update session_run set version = version + 1, next_seq = next_seq + 1 where session_id = 's'";

/// Ends the turn.
const END: &str = "insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, payload)
    select r.tenant_id, r.session_id, r.next_seq, r.epoch, r.turn_id, 1, 1, 'turn_completed', '' from session_run r where r.session_id = 's';
    update turns t set state = 3, ended_at = now(), last_seq = r.next_seq, outcome = '' from session_run r where t.session_id = 's' and r.session_id = 's';
    update session_run set version = version + 1, state = 0, owner = null, op = op + 1, next_seq = next_seq + 1 where session_id = 's'";

async fn somebody_waits_for_a_lock(world: &World) {
    let client = world.database.client().await;
    let sql = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    for _ in 0..1000 {
        if client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("nobody waits");
}

#[tokio::test]
async fn the_end_of_a_turn_waits_for_a_concurrent_enqueue() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let enqueuer = uncommitted(&world, ENQUEUE).await;
    let store = world.store.clone();
    let session = key.clone();
    let finishing =
        tokio::spawn(async move { finish(&store, &session, grant.turn_fence(), Rows::new(ESTIMATOR, 0)).await });
    somebody_waits_for_a_lock(&world).await;
    enqueuer.batch_execute("commit").await.unwrap();
    assert_eq!(applied(finishing.await.unwrap()).state, SessionState::Running);
    assert_eq!(state_and_waiting(&world, &key).await, (SessionState::Running, 1));
}

#[tokio::test]
async fn without_the_version_the_same_message_is_stranded() {
    let world = World::new().await;
    world.database.replace_commit_function(without_version).await;
    let store = world.store.clone();
    let (key, grant) = world.running("s").await;
    let enqueuer = uncommitted(&world, ENQUEUE).await;
    let session = key.clone();
    let finishing =
        tokio::spawn(async move { finish(&store, &session, grant.turn_fence(), Rows::new(ESTIMATOR, 0)).await });
    somebody_waits_for_a_lock(&world).await;
    enqueuer.batch_execute("commit").await.unwrap();
    assert_eq!(applied(finishing.await.unwrap()).state, SessionState::Idle);
    assert_eq!(state_and_waiting(&world, &key).await, (SessionState::Idle, 1));
}

#[tokio::test]
async fn an_enqueue_waits_for_a_concurrent_end_and_reports_an_idle_session() {
    let world = World::new().await;
    let (key, _) = world.running("s").await;
    let owner = uncommitted(&world, END).await;
    let store = world.store.clone();
    let session = key.clone();
    let queueing = tokio::spawn(async move { enqueue(&store, &session, "q").await });
    somebody_waits_for_a_lock(&world).await;
    owner.batch_execute("commit").await.unwrap();
    let place = queueing.await.unwrap();
    assert_eq!((place.session_state, place.turn), (SessionState::Idle, None));
    assert_eq!(state_and_waiting(&world, &key).await, (SessionState::Idle, 1));
}

#[tokio::test]
async fn a_take_that_waited_for_a_withdrawal_takes_nothing() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    enqueue(&world.store, &key, "q").await;
    let seen = world.store.queue_snapshot(&key).await.unwrap().unwrap().last_seq;
    let canceller = uncommitted(&world, WITHDRAW).await;
    let store = world.store.clone();
    let session = key.clone();
    let taking = tokio::spawn(async move { take(&store, &session, grant.turn_fence(), seen, &["q"], false).await });
    somebody_waits_for_a_lock(&world).await;
    canceller.batch_execute("commit").await.unwrap();
    assert_eq!(taking.await.unwrap(), ConditionalWriteOutcome::Stale);
    assert_eq!(state_and_waiting(&world, &key).await, (SessionState::Running, 0));
    world.assert_dense(&key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_message_promised_to_a_turn_is_stranded_by_its_end() {
    let world = World::new().await;
    let (key, mut grant) = world.running("s").await;
    let mut ended = 0;
    let mut joined = 0;
    for round in 0..200 {
        let id = format!("q{round}");
        let rows = Rows::new(ESTIMATOR, 0);
        let (written, place) =
            tokio::join!(finish(&world.store, &key, grant.turn_fence(), rows), enqueue(&world.store, &key, &id));
        let state = applied(written).state;
        match (place.session_state, state) {
            (SessionState::Running, SessionState::Idle) => panic!("{id} was left behind"),
            (SessionState::Running, SessionState::Running) => {
                joined += 1;
                assert_eq!(place.turn, Some(grant.turn.clone()));
                let fence = grant.turn_fence().next();
                let look = world.store.queue_snapshot(&key).await.unwrap().unwrap();
                let ids: Vec<&str> = look.waiting.iter().map(|queued| queued.message.as_str()).collect();
                let took = take(&world.store, &key, fence, look.last_seq, &ids, true).await;
                assert!(matches!(took, ConditionalWriteOutcome::Applied(_)), "{took:?}");
                grant.fence = grant.fence.next().next();
            }
            (SessionState::Idle, SessionState::Idle) => {
                ended += 1;
                assert_eq!(place.turn, None);
                grant = admit(&world.store, &key, &format!("turn{round}")).await.unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(ended > 0 && joined > 0, "the race was none: {ended} ends, {joined} joined");
    world.assert_dense(&key).await;
    let sql = "select count(*) from queue where session_id = $1 and (status = 1) <> (applied_to is not null)";
    assert_eq!(world.number(sql, &key).await, 0);
}

#[tokio::test]
async fn the_end_of_a_turn_lists_no_message_that_was_withdrawn_while_it_waited() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let message = MessageId::new("later");
    let idempotency = request("later");
    let later = NewQueued { delivery: Delivery::WhenIdle, ..asap(&message, &idempotency) };
    placed(world.store.enqueue(&key, &later, None).await.unwrap());
    let canceller = uncommitted(&world, WITHDRAW).await;
    let store = world.store.clone();
    let session = key.clone();
    let finishing =
        tokio::spawn(async move { finish(&store, &session, grant.turn_fence(), Rows::new(ESTIMATOR, 0)).await });
    somebody_waits_for_a_lock(&world).await;
    canceller.batch_execute("commit").await.unwrap();
    assert_eq!(applied(finishing.await.unwrap()).state, SessionState::Idle);
    let listed = "select cardinality(refs)::bigint from events where session_id = $1 and kind = 'turn_completed'";
    assert_eq!(world.number(listed, &key).await, 0, "the withdrawn message waits no longer");
    world.assert_dense(&key).await;
}
