//! The owner of a turn writes based on its cached state. It reads the session only if another replica has written it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;

/// The store of replica `one`, and a counter of its session reads.
fn counting(world: &World) -> (Store, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let pool = world.database.pool().rewriting(move |statements| {
        let read = statements.iter().filter(|sql| sql.contains("store::seen::session"));
        counted.fetch_add(read.count(), Ordering::Relaxed);
        statements.to_vec()
    });
    let store = Store::new(pool, "one", LEASE).with_session_memory(MEMORY);
    (store, reads)
}

async fn append(store: &Store, key: &SessionKey, right: TurnFence<'_>, id: &str) {
    let rows = says(id, Role::Assistant, 5, Category::Assistant);
    let cost = StepCost::default();
    applied(store.append(key, right, &rows, &cost, None).await.unwrap());
}

async fn retry(store: &Store, key: &SessionKey, right: TurnFence<'_>) {
    let rows = Rows::new(ESTIMATOR, 0);
    let cost = StepCost::default();
    applied(store.retry(key, right, &rows, &cost, None).await.unwrap());
}

#[tokio::test]
async fn an_owner_reads_a_session_only_where_somebody_else_wrote_it() {
    let world = World::new().await;
    let (store, reads) = counting(&world);
    let reads = || reads.load(Ordering::Relaxed);
    let key = key("s");
    let grant = admit_new(&store, &key).await.unwrap();
    append(&store, &key, grant.turn_fence(), "a1").await;
    retry(&store, &key, grant.turn_fence().next()).await;
    let right = grant.turn_fence().next().next();
    assert_eq!(reads(), 0, "it made the session, and wrote all that came after");

    store.send_heartbeat().await.unwrap();
    append(&store, &key, right, "a2").await;
    assert_eq!(reads(), 0, "its heartbeat changed nothing that it goes by");
    world.expire(&key).await;
    append(&store, &key, right.next(), "a3").await;
    assert_eq!(reads(), 1, "the row was written by another");
    applied(finish(&store, &key, right.next().next(), Rows::new(ESTIMATOR, 0)).await);

    let grant = admit(&store, &key, "t2").await.unwrap();
    let (rows, batch) = answer_with_calls("m", &["c1"]);
    let cost = StepCost::default();
    let written = store.append(&key, grant.turn_fence(), &rows, &cost, Some(&batch));
    applied(written.await.unwrap());
    assert_eq!(reads(), 1, "it was admitted here");
    let submitted = submit(&store, &key, &["c1"], &unremembered()).await;
    let before = reads();
    retry(&store, &key, submitted.grant.unwrap().turn_fence()).await;
    assert_eq!(reads(), before, "the turn went on here");
    world.assert_dense(&key).await;
}

#[tokio::test]
async fn an_owner_of_a_turn_for_a_message_that_waits_reads_nothing_before_it_writes() {
    let world = World::new().await;
    let (store, reads) = counting(&world);
    let key = world.idle("s").await;
    let message = MessageId::new("q1");
    let idempotency = unremembered();
    let new = NewQueued { starts_turn: true, ..asap(&message, &idempotency) };
    placed(world.store.enqueue(&key, &new, None).await.unwrap());
    let turn = TurnId::new("t2");
    let rows = opening_without_input();
    let request = TurnRequest::default();
    let start = admission(&turn, &rows, &idempotency, &request);
    let grant = store.start_idle(&key, &message, &start).await;
    assert_eq!(reads.load(Ordering::Relaxed), 1, "the message came elsewhere");
    retry(&store, &key, grant.unwrap().unwrap().turn_fence()).await;
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}

/// A standby without the last commit takes over, and another write gets its epoch, op and seq.
#[tokio::test]
async fn a_session_whose_last_write_was_lost_is_read_again() {
    let world = World::new().await;
    let (store, reads) = counting(&world);
    let key = key("s");
    let right = admit_new(&store, &key).await.unwrap();
    let right = right.turn_fence();
    let client = world.database.client().await;
    let before = "create temp table before as select * from session_run";
    client.batch_execute(before).await.unwrap();
    append(&store, &key, right, "a1").await;
    assert_eq!(reads.load(Ordering::Relaxed), 0);

    let lose = "delete from events e using before b where e.seq >= b.next_seq; delete from messages where message_id = 'a1';
                delete from parts where message_id = 'a1';
                update session_run r set (version, op, next_seq, attempt, step, ctx_messages, ctx_overhead, ctx_tokens, ctx_parts)
                  = (select b.version, b.op, b.next_seq, b.attempt, b.step, b.ctx_messages, b.ctx_overhead, b.ctx_tokens, b.ctx_parts from before b)";
    client.batch_execute(lose).await.unwrap();
    append(&world.store, &key, right, "instead").await;
    append(&store, &key, right.next(), "a2").await;
    assert_eq!(reads.load(Ordering::Relaxed), 1, "the write was another one");
    world.assert_dense(&key).await;
    append(&store, &key, right.next().next(), "a3").await;
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}
