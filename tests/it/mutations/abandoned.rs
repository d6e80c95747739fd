//! Calls that are dropped at each point where they wait: nothing is left half done, and no
//! connection is left spoiled.

use futures_util::future::join_all;
use tonic::Status;

use super::{ALL, Case, Rpc, options};
use crate::harness::{Host, dice::polled, events::PATIENCE};

/// How often a call is asked for its answer at most.
const POLLS: usize = 60;
/// Statements at once that show that every connection still works.
const CONNECTIONS: usize = 8;

/// Drops the call of each RPC after 1, 2, 3 ... polls, until it is through. After each the same
/// request is sent again.
async fn sweep<F: Future<Output = Option<Result<String, Status>>>>(
    host: &Host,
    how: &str,
    call: impl Fn(Case) -> F,
) {
    let client = host.database.client().await;
    for rpc in ALL {
        let mut dropped = 0;
        for polls in 1..=POLLS {
            let session = format!("{how}-{rpc:?}-{polls}");
            let case = Case::prepare(host, rpc, session).await;
            let again = Case {
                rpc,
                session: case.session.clone(),
                call: case.call.clone(),
            };
            let session = case.session.clone();
            let done = polled(Box::pin(call(case)), polls).await;
            let repeated = Box::pin(again.ask(host))
                .await
                .unwrap_or_else(|status| panic!("{session}: {status:?}"));
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
    let pinged =
        join_all((0..CONNECTIONS).map(|_| host.replica.engine.store().ping(PATIENCE))).await;
    assert!(pinged.iter().all(Result::is_ok), "{pinged:?}");
    let open = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'";
    assert_eq!(
        client.query_one(open, &[]).await.unwrap().get::<_, i64>(0),
        0
    );
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
