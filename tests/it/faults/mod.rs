//! Real faults: processes are killed and stopped, connections are cut, PostgreSQL crashes, and every turn is still
//! delivered to its end exactly once. docs/reliability.md lists the faults. Faults that a machine cannot produce are
//! skipped with a message.

mod clients;
mod commits;
mod connections;
mod database;
mod disk;
mod drain;
mod failover;
mod links;
mod locks;
mod owners;
mod pooler;
mod refusals;
mod standby;
mod storm;
mod upgrades;

use std::future::Future;

use contextd::pb;
use tokio_postgres::Client;

pub(super) use crate::harness::survivor::WORDS;
use crate::harness::{
    events::{message_text, messages},
    process::Served,
    survivor::Survivor,
};

/// The shortest possible leases, short poll intervals, and short statement timeouts.
pub(super) const QUICK: &str = "[turn]\nlease_ttl = '1s'\npoll_interval = '50ms'\n\
                                [database]\nstatement_timeout = '1s'\nconnect_timeout = '1s'\nacquire_timeout = '1s'\n";
/// Leases that do not expire during a test, and short database timeouts.
pub(super) const PATIENT: &str = "[turn]\nlease_ttl = '5m'\npoll_interval = '50ms'\n\
                                  [database]\nstatement_timeout = '2s'\nconnect_timeout = '1s'\nacquire_timeout = '1s'\n";

/// The text of the last message.
pub(super) fn last_words(host: &Survivor) -> String {
    message_text(messages(&host.seen).last().unwrap())
}

/// Fails unless the events of a slow turn are complete and without duplicates.
pub(super) async fn check_slow(host: &Survivor, served: &Served) {
    host.check_story(served).await;
    assert_eq!(last_words(host), WORDS);
}

/// The stored turn.
pub(super) async fn turn_of(served: &Served, host: &Survivor) -> pb::Turn {
    let turn_id = host.seen.iter().map(|event| event.turn_id.clone()).find(|id| !id.is_empty()).unwrap();
    let request = pb::GetTurnRequest { session_id: host.session().to_owned(), turn_id };
    served.turns().await.get_turn(request).await.unwrap().into_inner().turn.unwrap()
}

/// A free port for the admin port of a process.
pub(super) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Waits until the query returns true.
pub(super) async fn becomes_true(client: &Client, sql: &str) {
    crate::harness::host::until(sql, || async { client.query_one(sql, &[]).await.unwrap().get(0) }).await;
}

/// Runs futures concurrently.
pub(super) async fn all<T>(stories: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    futures_util::future::join_all(stories).await
}
