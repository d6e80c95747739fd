//! Calls that are dropped at each point where they wait: no partial state and no unusable connection is left.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio_postgres::Client;
use tonic::Status;

use super::{ALL, Case, Rpc, options};
use crate::harness::{Host, Options, dice::polled, events::TEST_TIMEOUT, host::until};

/// Maximum number of polls of a call.
const POLLS: usize = 60;
/// Number of concurrent statements that verify that every connection still works.
const CONNECTIONS: usize = 8;
/// A case only counts if it took less than this: a statement waits at most two seconds for a lock.
const LOCK_WAIT: Duration = Duration::from_millis(1_500);
/// After this time, the server has cancelled the work of a disconnected client, if it does so.
const LEFT: Duration = Duration::from_millis(400);

/// Drops the call of each RPC after 1, 2, 3 ... polls, until it completes. After each drop, the same request is sent
/// again.
async fn sweep<F: Future<Output = Option<Result<String, Status>>>>(host: &Host, how: &str, call: impl Fn(Case) -> F) {
    let client = host.database.client().await;
    for rpc in ALL {
        let mut dropped = 0;
        for polls in 1..=POLLS {
            let session = format!("{how}-{rpc:?}-{polls}");
            let case = Case::prepare(host, rpc, session).await;
            let again = Case { rpc, session: case.session.clone(), call: case.call.clone() };
            let session = case.session.clone();
            let done = polled(Box::pin(call(case)), polls).await;
            let repeated = Box::pin(again.ask(host)).await.unwrap_or_else(|status| panic!("{session}: {status:?}"));
            assert_eq!(again.effects(&client).await, 1, "{session}");
            match done {
                Some(Some(answer)) => {
                    assert_eq!(answer.unwrap(), repeated, "{session}");
                    break;
                }
                Some(None) => break,
                None => dropped += 1,
            }
        }
        assert!(
            dropped > 0 && dropped < POLLS || (rpc == Rpc::PutBlob && how == "inside"),
            "{rpc:?}: dropped {dropped} times"
        );
    }
    host.at_rest().await;
    let pinged = join_all((0..CONNECTIONS).map(|_| host.replica.engine.store().ping(TEST_TIMEOUT))).await;
    assert!(pinged.iter().all(Result::is_ok), "{pinged:?}");
    let open = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'";
    assert_eq!(client.query_one(open, &[]).await.unwrap().get::<_, i64>(0), 0);
    crate::protocol::assert_sound(&client).await;
}

/// Row F36
#[tokio::test]
async fn a_handler_dropped_at_any_await_leaves_no_partial_state() {
    let host = Host::with(options()).await;
    sweep(&host, "inside", |case| {
        let host = &host;
        async move { case.ask_inside(host).await }
    })
    .await;
}

/// Row I8
#[tokio::test]
async fn a_client_disconnect_at_any_point_leaves_no_partial_state() {
    let host = Host::with(options()).await;
    sweep(&host, "outside", |case| {
        let host = &host;
        async move { Some(case.ask(host).await) }
    })
    .await;
}

/// Sends a request, and disconnects while its write waits for a lock. Returns the case, or `None` if the lock wait may
/// have timed out before that.
async fn leaves_while_it_waits(host: &Host, lock: &Client, rpc: Rpc, session: String) -> Option<Case> {
    let case = Case::prepare(host, rpc, session).await;
    host.at_rest().await;
    let look = host.database.client().await;
    let waits = "select exists (select from pg_stat_activity
                                 where datname = current_database() and wait_event_type = 'Lock')";
    lock.batch_execute("begin; lock table sessions, session_run in exclusive mode").await.unwrap();
    let begun = Instant::now();
    tokio::select! {
        answer = case.ask(host) => panic!("{rpc:?} did not wait: {answer:?}"),
        () = until("the request to wait for the lock", || async {
            look.query_one(waits, &[]).await.unwrap().get(0)
        }) => {}
    }
    tokio::time::sleep(LEFT).await;
    lock.batch_execute("rollback").await.unwrap();
    (begun.elapsed() < LOCK_WAIT).then_some(case)
}

/// Row I8
#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_carried_out_although_its_client_left() {
    // Nothing else waits for the lock.
    let host = Host::with(Options { workers: false, ..options() }).await;
    let client = host.database.client().await;
    let lock = host.database.client().await;
    for rpc in ALL {
        // An upload ends with its stream, and a turn is not started for a disconnected caller.
        if [Rpc::PutBlob, Rpc::ExecuteTurn].contains(&rpc) {
            continue;
        }
        for attempt in 0.. {
            let session = format!("left-{rpc:?}-{attempt}");
            if let Some(case) = leaves_while_it_waits(&host, &lock, rpc, session).await {
                until(&format!("{rpc:?} to be carried out"), || async { case.effects(&client).await == 1 }).await;
                break;
            }
            assert!(attempt < 20, "{rpc:?} never left in time");
        }
    }
    host.at_rest().await;
    crate::protocol::assert_sound(&client).await;
}
