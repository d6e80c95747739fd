//! Contention in the database: long locks, deadlocks, and more requests than connections.

use std::time::{Duration, Instant};

use contextd::pb::{self, event::Payload};
use tonic::Code;

use crate::harness::{
    TestDatabase,
    errors::refusal,
    events::TEST_TIMEOUT,
    host::until,
    process::Place,
    requests::turn,
    survivor::{Survivor, asking, recoveries, slow, two_tools},
};

use super::{PATIENT, all, becomes_true, check_slow};

const WAITING: &str = "select exists(select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' \
                       and query like '-- store::commit::%')";

/// Row F15
#[tokio::test(flavor = "multi_thread")]
async fn a_long_table_lock_loses_no_turn() {
    let settings = PATIENT.replace("'2s'", "'10s'"); // the lock timeout is shorter than the statement timeout
    let database = TestDatabase::new().await;
    let place = Place::new(&settings).script("slow", &slow());
    let served = place.serve_over(&database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    let ddl = database.client().await;
    ddl.batch_execute("begin; lock table session_run in access exclusive mode").await.unwrap();
    let held = Instant::now();
    becomes_true(&database.client().await, WAITING).await;
    while held.elapsed() < Duration::from_secs(4) {
        tokio::time::sleep(Duration::from_millis(50)).await; // longer than any lock timeout
    }
    ddl.batch_execute("rollback").await.unwrap();
    host.survive(&[&served]).await;
    check_slow(&host, &served).await;
    assert_eq!(recoveries(&host.seen), [], "its owner went on by itself");
}

/// Row F16
#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_pool_are_refused_in_time_while_turns_keep_their_leases() {
    let settings = "[turn]\nlease_ttl = '2s'\npoll_interval = '50ms'\n\
                    [database]\npool_size = 2\nacquire_timeout = '300ms'\nstatement_timeout = '20s'\n";
    let database = TestDatabase::new().await;
    let place = Place::new(settings).script("slow", &slow_for_long());
    let served = place.serve_over(&database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    // Requests that wait for this lock occupy both connections.
    let lock = database.client().await;
    lock.batch_execute(
        "begin; lock table blobs in access exclusive mode; lock table sessions in access exclusive mode",
    )
    .await
    .unwrap();
    let turns = served.turns().await;
    let asked = Instant::now();
    let answers = all((0..100).map(|n| {
        let mut turns = turns.clone();
        async move { turns.execute_turn(turn(&format!("late-{n}"), "scripted/slow", "Go")).await.map(drop) }
    }));
    let hold = async {
        while asked.elapsed() < Duration::from_secs(3) {
            tokio::time::sleep(Duration::from_millis(50)).await; // longer than a lease
        }
        lock.batch_execute("rollback").await.unwrap();
    };
    let (answers, ()) = tokio::join!(answers, hold);
    let refused: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    assert!(refused.len() >= 90, "{} were refused", refused.len());
    for status in &refused {
        assert_eq!((status.code(), refusal(status).reason.as_str()), (Code::Unavailable, "OVERLOADED"));
    }
    while host.next().await.unwrap().is_some() {}
    host.check_story(&served).await;
    assert_eq!(recoveries(&host.seen), [], "its lease was renewed all the while");
    let mut next = Survivor::new(asking("scripted/slow", "chat-2"));
    tokio::time::timeout(TEST_TIMEOUT, next.survive(&[&served])).await.expect("the pool did not come back");
}

/// Row F16: new requests are refused immediately, and requests that running turns wait for have priority.
#[tokio::test(flavor = "multi_thread")]
async fn while_requests_wait_for_the_pool_new_ones_are_refused_at_once_and_results_are_not() {
    let settings =
        "[database]\npool_size = 2\nacquire_timeout = '20s'\noverload_wait = '100ms'\nstatement_timeout = '20s'\n";
    let database = TestDatabase::new().await;
    let place = Place::new(settings).script("tools", &two_tools());
    let served = place.serve_over(&database).await;
    let mut host = Survivor::new(asking("scripted/tools", "chat"));
    host.send_to(&served).await.unwrap();
    let Payload::ActionRequired(open) = host.until(|payload| matches!(payload, Payload::ActionRequired(_))).await
    else {
        unreachable!()
    };
    let lock = database.client().await;
    lock.batch_execute("begin; lock table sessions in access exclusive mode").await.unwrap();
    let sessions = served.sessions().await;
    let list = || {
        let mut sessions = sessions.clone();
        async move {
            let listed = sessions.list_sessions(pb::ListSessionsRequest::default());
            listed.await.map(drop)
        }
    };
    // Two requests hold the connections, and one waits for a connection.
    let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(list())).collect();
    let look = database.client().await;
    until("both connections to be held", || async {
        let held =
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
        look.query_one(held, &[]).await.unwrap().get::<_, i64>(0) == 2
    })
    .await;
    let moment = Duration::from_millis(200);
    until("a new request to be refused at once", || async {
        let answer = tokio::time::timeout(moment, list()).await;
        answer.is_ok_and(|answer| refusal(&answer.unwrap_err()).reason == "OVERLOADED")
    })
    .await;
    let answer = tokio::time::timeout(5 * moment, host.answer(&served, &open.result_call_ids)).await;
    assert!(answer.is_err(), "results wait as long as they have to");
    lock.batch_execute("rollback").await.unwrap();
    for listed in waiting {
        listed.await.unwrap().unwrap();
    }
    host.answer(&served, &open.result_call_ids).await;
    host.finish_at(&served).await;
    host.check_story(&served).await;
    list().await.unwrap();
}

/// Row F16: clients that cancel their calls.
#[tokio::test(flavor = "multi_thread")]
async fn abandoned_calls_never_hold_more_connections_than_the_pool() {
    const POOL: i64 = 4;
    /// Connections outside of the pool: those for heartbeats, and the listening connection.
    const BESIDE: i64 = 3;
    let settings = "[turn]\nlease_ttl = '2s'\npoll_interval = '50ms'\n\
                    [database]\npool_size = 4\nacquire_timeout = '5s'\nstatement_timeout = '20s'\n";
    let database = TestDatabase::new().await;
    let place = Place::new(settings).script("slow", &slow_for_long());
    let served = place.serve_over(&database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    let lock = database.client().await;
    let look = database.client().await;
    lock.batch_execute("begin; lock table session_activity in access exclusive mode").await.unwrap();
    let sessions = served.sessions().await;
    let stalled = Instant::now();
    let mut most = 0;
    let mut most_stalled = 0;
    let hasty = async {
        while stalled.elapsed() < Duration::from_secs(4) {
            all((0..50).map(|_| {
                let mut sessions = sessions.clone();
                let mut request = tonic::Request::new(pb::ListSessionsRequest::default());
                request.set_timeout(Duration::from_millis(150));
                async move { sessions.list_sessions(request).await.map(drop) }
            }))
            .await;
        }
    };
    let count = "select count(*), count(*) filter (where wait_event_type = 'Lock') from pg_stat_activity \
                 where datname = current_database() and application_name = 'contextd'";
    let watch = async {
        while stalled.elapsed() < Duration::from_secs(4) {
            let row = look.query_one(count, &[]).await.unwrap();
            (most, most_stalled) = (most.max(row.get(0)), most_stalled.max(row.get::<_, i64>(1)));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::join!(hasty, watch);
    eprintln!("at most {most} connections, {most_stalled} of them waiting for the lock");
    assert!(most_stalled > 0, "nothing stalled");
    assert!(most_stalled <= POOL + BESIDE, "{most_stalled} statements were waiting at once");
    // A connection that was just closed may still be terminating while the next one starts.
    assert!(most <= 2 * POOL + BESIDE, "{most} connections at once");
    lock.batch_execute("rollback").await.unwrap();
    served.sessions().await.list_sessions(pb::ListSessionsRequest::default()).await.unwrap();
    while host.next().await.unwrap().is_some() {}
    host.check_story(&served).await;
    assert_eq!(recoveries(&host.seen), [], "its lease was renewed all the while");
}

/// A short response that takes longer than a lease of two seconds.
fn slow_for_long() -> serde_json::Value {
    serde_json::json!({ "steps": [{ "say": [{ "text": "one two three four five six seven eight", "delay_ms": 600 }] }] })
}

/// Row F17
#[tokio::test(flavor = "multi_thread")]
async fn a_deadlocked_transaction_is_retried_transparently() {
    let settings = PATIENT.replace("'2s'", "'10s'");
    let database = TestDatabase::new().await;
    let place = Place::new(&settings).script("slow", &slow());
    let config = database.client().await;
    let name = database.config.get_dbname().unwrap();
    // The other transaction has a long deadlock timeout, so that PostgreSQL aborts contextd's transaction.
    config.batch_execute(&format!("alter database {name} set deadlock_timeout = '200ms'")).await.unwrap();
    let served = place.serve_over(&database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    let other = database.client().await;
    other.batch_execute("set deadlock_timeout = '20s'; begin; select from turns for update").await.unwrap();
    becomes_true(&config, WAITING).await; // the end of the turn holds the hot row and waits for the row of the turn
    other.batch_execute("select from session_run for update; rollback").await.unwrap();
    while host.next().await.unwrap().is_some() {}
    check_slow(&host, &served).await;
    let deadlocks = "select deadlocks > 0 from pg_stat_database where datname = current_database()";
    becomes_true(&config, deadlocks).await;
}

/// Row F26
#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_granted_the_same_turn_run_it_once() {
    let database = TestDatabase::new().await;
    let place = Place::new(PATIENT).script("tools", &two_tools());
    let (first, second) = crate::harness::survivor::pair(&place, &database).await;
    for round in 0..5 {
        let request = asking("scripted/tools", &format!("chat-{round}"));
        let mut hosts: Vec<Survivor> = (0..8).map(|_| Survivor::new(request.clone())).collect();
        let replicas = [&first, &second];
        all(hosts.iter_mut().enumerate().map(async |(n, host)| host.survive(&[replicas[n % 2]]).await)).await;
        for host in &hosts {
            host.check_story(&first).await;
        }
        let other = pb::ExecuteTurnRequest { request_id: "another".into(), ..request };
        let mut next = Survivor::new(other);
        next.survive(&[&second]).await;
        let told = crate::harness::survivor::events(&first, next.session()).await;
        let starts = told.iter().filter(|event| crate::harness::events::kind(event) == "turn_started").count();
        assert_eq!(starts, 2, "one for each request");
    }
}
