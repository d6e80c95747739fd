//! Faults that are really made: processes are killed and stopped, sockets cut, PostgreSQL crashed,
//! and every turn is told to its end, once. docs/reliability.md lists them; what a machine cannot
//! do is skipped, and says so.

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
    events::{messages, said},
    process::Served,
    survivor::Survivor,
};

/// Leases as short as they get, polls quick, and statements given up soon.
pub(super) const QUICK: &str = "[turn]\nlease_ttl = '1s'\npoll_interval = '50ms'\n\
                                [database]\nstatement_timeout = '1s'\nconnect_timeout = '1s'\nacquire_timeout = '1s'\n";
/// Nothing is taken over while a test runs, and the database is given up soon.
pub(super) const PATIENT: &str = "[turn]\nlease_ttl = '5m'\npoll_interval = '50ms'\n\
                                  [database]\nstatement_timeout = '2s'\nconnect_timeout = '1s'\nacquire_timeout = '1s'\n";

/// The words of the last message.
pub(super) fn last_words(host: &Survivor) -> String {
    said(messages(&host.seen).last().unwrap())
}

/// A slow turn was told whole, once.
pub(super) async fn check_slow(host: &Survivor, served: &Served) {
    host.check_story(served).await;
    assert_eq!(last_words(host), WORDS);
}

/// How a turn is stored.
pub(super) async fn turn_of(served: &Served, host: &Survivor) -> pb::Turn {
    let turn_id = host
        .seen
        .iter()
        .map(|event| event.turn_id.clone())
        .find(|id| !id.is_empty())
        .unwrap();
    let request = pb::GetTurnRequest {
        session_id: host.session().to_owned(),
        turn_id,
    };
    served
        .turns()
        .await
        .get_turn(request)
        .await
        .unwrap()
        .into_inner()
        .turn
        .unwrap()
}

/// A port for the admin page of a process.
pub(super) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Looks at a number in the database until it is as wanted.
pub(super) async fn becomes_true(client: &Client, sql: &str) {
    crate::harness::host::until(sql, || async {
        client.query_one(sql, &[]).await.unwrap().get(0)
    })
    .await;
}

/// Runs stories at once.
pub(super) async fn all<T>(stories: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    futures_util::future::join_all(stories).await
}
