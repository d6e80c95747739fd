//! The gate between enqueue and the end of a turn: a message that was told "turn T runs" is in T,
//! or T did not end.

use contextd::{
    session::SessionState,
    store::{hot_statements, hot_transitions, take::Take},
};

use super::{hot::finish_fence, *};

fn statement(name: &str) -> &'static str {
    let alone = hot_statements()
        .into_iter()
        .find(|(known, _)| *known == name)
        .map(|(_, sql)| sql);
    let named = || {
        let (_, statements) = hot_transitions()
            .into_iter()
            .find(|(known, _)| *known == name)
            .unwrap();
        statements[0].sql.as_str()
    };
    alone.unwrap_or_else(named)
}

/// The head of a session and how many messages wait.
async fn state_and_waiting(world: &World, key: &SessionKey) -> (SessionState, usize) {
    let look = world.store.look(key).await.unwrap().unwrap();
    (look.state, look.waiting.len())
}

/// An enqueue that was told what the session does, and has not committed. Gives what it was told.
async fn enqueue_without_commit(client: &tokio_postgres::Client, session: &str) -> i16 {
    let enqueue = statement("enqueue");
    client
        .batch_execute(&format!("prepare enqueue as {enqueue}; begin"))
        .await
        .unwrap();
    let execute = format!(
        "execute enqueue ('t', '{session}', 'r', 'hash', 'q', 100, '', 1, false, false, null, null)"
    );
    let answers = client.simple_query(&execute).await.unwrap();
    let state = answers.iter().find_map(|answer| {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = answer {
            row.get("state")
        } else {
            None
        }
    });
    state.unwrap().parse().unwrap()
}

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
    let enqueuer = world.database.client().await;
    assert_eq!(enqueue_without_commit(&enqueuer, "s").await, 1);
    let store = world.store.clone();
    let session = key.clone();
    let finishing = tokio::spawn(async move {
        finish(&store, &session, grant.right(), Rows::new(ESTIMATOR, 0)).await
    });
    somebody_waits_for_a_lock(&world).await;
    enqueuer.batch_execute("commit").await.unwrap();
    assert_eq!(
        applied(finishing.await.unwrap()).state,
        SessionState::Running
    );
    assert_eq!(
        state_and_waiting(&world, &key).await,
        (SessionState::Running, 1)
    );
}

#[tokio::test]
async fn without_the_gate_the_same_message_is_stranded() {
    let world = World::new().await;
    let (key, _) = world.running("s").await;
    let enqueuer = world.database.client().await;
    assert_eq!(enqueue_without_commit(&enqueuer, "s").await, 1);
    let owner = world.database.client().await;
    let (finish, arguments) = finish_fence("s");
    owner
        .batch_execute(&format!(
            "prepare finish as {finish}; execute finish ({arguments})"
        ))
        .await
        .unwrap();
    enqueuer.batch_execute("commit").await.unwrap();
    assert_eq!(
        state_and_waiting(&world, &key).await,
        (SessionState::Idle, 1)
    );
}

#[tokio::test]
async fn an_enqueue_waits_for_a_concurrent_end_and_reports_an_idle_session() {
    let world = World::new().await;
    let (key, _) = world.running("s").await;
    let owner = world.database.client().await;
    let gate = statement("gate");
    let (finish, arguments) = finish_fence("s");
    owner
        .batch_execute(&format!(
            "prepare gate as {gate}; prepare finish as {finish}; begin"
        ))
        .await
        .unwrap();
    owner
        .batch_execute("execute gate ('t', 's')")
        .await
        .unwrap();
    owner
        .batch_execute(&format!("execute finish ({arguments})"))
        .await
        .unwrap();
    let store = world.store.clone();
    let session = key.clone();
    let queueing = tokio::spawn(async move { enqueue(&store, &session, "q").await });
    somebody_waits_for_a_lock(&world).await;
    owner.batch_execute("commit").await.unwrap();
    let place = queueing.await.unwrap();
    assert_eq!((place.met, place.turn), (SessionState::Idle, None));
    assert_eq!(
        state_and_waiting(&world, &key).await,
        (SessionState::Idle, 1)
    );
}

#[tokio::test]
async fn a_take_that_waited_for_a_withdrawal_takes_nothing() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    enqueue(&world.store, &key, "q").await;
    let seen = world.store.look(&key).await.unwrap().unwrap().last_seq;
    let canceller = world.database.client().await;
    let lock = statement("lock_run");
    let unqueue = statement("unqueue");
    canceller
        .batch_execute(&format!(
            "prepare lock as {lock}; prepare unqueue as {unqueue}; begin"
        ))
        .await
        .unwrap();
    canceller
        .batch_execute("execute lock ('t', 's')")
        .await
        .unwrap();
    let withdraw = "execute unqueue ('t', 's', null, false, null, 2, null, 'queued_message_cancelled', '', null)";
    canceller.batch_execute(withdraw).await.unwrap();
    let store = world.store.clone();
    let session = key.clone();
    let taking =
        tokio::spawn(
            async move { take(&store, &session, grant.right(), seen, &["q"], false).await },
        );
    somebody_waits_for_a_lock(&world).await;
    canceller.batch_execute("commit").await.unwrap();
    assert_eq!(taking.await.unwrap(), Take::Moved);
    assert_eq!(
        state_and_waiting(&world, &key).await,
        (SessionState::Running, 0)
    );
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
        let (written, place) = tokio::join!(
            finish(&world.store, &key, grant.right(), rows),
            enqueue(&world.store, &key, &id)
        );
        let state = applied(written).state;
        match (place.met, state) {
            (SessionState::Running, SessionState::Idle) => panic!("{id} was left behind"),
            (SessionState::Running, SessionState::Running) => {
                joined += 1;
                assert_eq!(place.turn, Some(grant.turn.clone()));
                let fence = grant.right().next();
                let look = world.store.look(&key).await.unwrap().unwrap();
                let ids: Vec<&str> = look
                    .waiting
                    .iter()
                    .map(|queued| queued.message.as_str())
                    .collect();
                let took = take(&world.store, &key, fence, look.last_seq, &ids, true).await;
                assert!(matches!(took, Take::Applied(_)), "{took:?}");
                grant.fence = grant.fence.next().next();
            }
            (SessionState::Idle, SessionState::Idle) => {
                ended += 1;
                assert_eq!(place.turn, None);
                grant = admit(&world.store, &key, &format!("turn{round}"))
                    .await
                    .unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(
        ended > 0 && joined > 0,
        "the race was none: {ended} ends, {joined} joined"
    );
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
    let later = NewQueued {
        delivery: Delivery::WhenIdle,
        ..asap(&message, &idempotency)
    };
    placed(world.store.enqueue(&key, &later, None).await.unwrap());
    let canceller = world.database.client().await;
    let lock = statement("lock_run");
    let unqueue = statement("unqueue");
    canceller
        .batch_execute(&format!(
            "prepare lock as {lock}; prepare unqueue as {unqueue}; begin"
        ))
        .await
        .unwrap();
    canceller
        .batch_execute("execute lock ('t', 's')")
        .await
        .unwrap();
    let withdraw = "execute unqueue ('t', 's', null, false, null, 2, null, 'queued_message_cancelled', '', null)";
    canceller.batch_execute(withdraw).await.unwrap();
    let store = world.store.clone();
    let session = key.clone();
    let finishing = tokio::spawn(async move {
        finish(&store, &session, grant.right(), Rows::new(ESTIMATOR, 0)).await
    });
    somebody_waits_for_a_lock(&world).await;
    canceller.batch_execute("commit").await.unwrap();
    assert_eq!(applied(finishing.await.unwrap()).state, SessionState::Idle);
    let listed = "select cardinality(refs)::bigint from events where session_id = $1 and kind = 'turn_completed'";
    assert_eq!(
        world.number(listed, &key).await,
        0,
        "the withdrawn message waits no longer"
    );
    world.assert_dense(&key).await;
}
