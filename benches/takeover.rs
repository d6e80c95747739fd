//! Measures how long a turn makes no progress after its replica is killed or stopped. `docs/benchmarks.md` explains the
//! results.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

mod place;

use std::time::{Duration, Instant};

use contextd::{
    pb::{self, event::Payload, turn_service_client::TurnServiceClient},
    postgres::{DATABASE, Postgres},
};
use futures_util::{StreamExt as _, stream};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use place::{Served, turn, watch};
use tempfile::TempDir;
use tokio_postgres::NoTls;
use tonic::Streaming;

/// Rounds of each kind; one under `cargo test`, which only checks that the benchmark runs.
const ROUNDS: usize = 20;
/// A short lease, and a stop without a drain.
const SETTINGS: &str = "[turn]\nlease_ttl = '2s'\n[server]\ndrain_timeout = '0s'\n";
const LEASE: Duration = Duration::from_secs(2);
/// Turns that lose their owner at the same time.
const ORPHANS: usize = 1000;
/// How many of them are started concurrently.
const BEGUN_AT_ONCE: usize = 16;
/// A model that produces no text.
const SILENT: &str = r#"{ "steps": [{ "say": [{ "wait_for": "nobody" }, { "text": "word" }] }] }"#;
/// A model that produces text for far longer than a round.
const SCRIPT: &str =
    r#"{ "steps": [{ "say": [{ "repeat": { "text": "word ", "times": 100000 }, "delay_ms": 20 }] }] }"#;

#[tokio::main]
async fn main() {
    let rounds = if std::env::args().any(|arg| arg == "--bench") { ROUNDS } else { 1 };
    let place = place::directory();
    let postgres = place::start_postgres(&place).await;
    let other = Served::start(&place, &postgres, SCRIPT, SETTINGS);
    println!("\n{rounds} rounds, a lease of {LEASE:?}; until the first new event on the other replica");
    println!("  {:<24} {:>10} {:>10} {:>10}", "", "p50", "worst", "aim");
    for (name, signal, aim) in [
        ("kill -9", Signal::SIGKILL, LEASE.mul_f64(1.3) + Duration::from_secs(1)),
        ("an immediate stop", Signal::SIGTERM, Duration::from_millis(500)),
    ] {
        let mut samples = Vec::new();
        for n in 0..rounds {
            samples.push(stands_still(&place, &postgres, &other, &format!("{signal}-{n}"), signal).await);
        }
        samples.sort_unstable();
        let middle = samples[samples.len() / 2];
        let worst = samples[samples.len() - 1];
        println!("  {name:<24} {middle:>10.2?} {worst:>10.2?} {aim:>10.2?}");
    }
    drop(other);
    let orphans = if rounds == ROUNDS { ORPHANS } else { ROUNDS };
    let took = all_taken_over(&place, &postgres, orphans).await;
    println!(
        "  kill -9 of a replica with {orphans} turns: the last one is taken over {took:.2?} after its lease expires"
    );
    postgres.stop().await.unwrap();
}

/// Starts `orphans` turns on a replica and kills it while another replica runs. Returns how long after the expiry of
/// the lease the last turn resumed.
async fn all_taken_over(place: &TempDir, postgres: &Postgres, orphans: usize) -> Duration {
    let settings = SETTINGS.replace("[turn]\n", "[turn]\nmax_running_turns = 2000\n");
    let first = Served::start(place, postgres, SILENT, &settings);
    let _other = Served::start(place, postgres, SILENT, &settings);
    let turns = TurnServiceClient::connect(first.url()).await.unwrap();
    stream::iter(0..orphans)
        .for_each_concurrent(BEGUN_AT_ONCE, |n| {
            let mut turns = turns.clone();
            async move {
                let request = turn(&format!("orphan-{n}"));
                let mut events = turns.execute_turn(request).await.unwrap().into_inner();
                // A turn continues without its reader.
                while let Some(message) = events.message().await.unwrap() {
                    if matches!(message.event.and_then(|event| event.payload), Some(Payload::StepStarted(_))) {
                        break;
                    }
                }
            }
        })
        .await;
    let (client, connection) = postgres.config(DATABASE).connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let running = "select count(*) from session_run where session_id like 'orphan-%' and epoch = 1
                      and owner is not null";
    let running: i64 = client.query_one(running, &[]).await.unwrap().get(0);
    assert_eq!(running, i64::try_from(orphans).unwrap());
    kill(Pid::from_raw(i32::try_from(first.child.id()).unwrap()), Signal::SIGKILL).unwrap();
    let lease = "select extract(epoch from max(lease_until) - clock_timestamp())::float8
                   from session_run where session_id like 'orphan-%'";
    let lease: f64 = client.query_one(lease, &[]).await.unwrap().get(0);
    let ended = Instant::now() + Duration::from_secs_f64(lease.max(0.0));
    let left = "select count(*) from session_run where session_id like 'orphan-%' and epoch = 1";
    while client.query_one(left, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    ended.elapsed()
}

/// How long after the signal to a turn's replica a reader on another replica sees the turn resume.
async fn stands_still(place: &TempDir, postgres: &Postgres, other: &Served, session: &str, signal: Signal) -> Duration {
    let first = Served::start(place, postgres, SCRIPT, SETTINGS);
    let mut turns = TurnServiceClient::connect(first.url()).await.unwrap();
    let mut stream = turns.execute_turn(turn(session)).await.unwrap().into_inner();
    while let Some(message) = stream.message().await.unwrap() {
        if matches!(message.event.and_then(|event| event.payload), Some(Payload::TextDelta(_))) {
            break;
        }
    }
    let mut turns = TurnServiceClient::connect(other.url()).await.unwrap();
    let mut watch = turns.watch_events(watch(session, 0)).await.unwrap().into_inner();
    until(&mut watch, |payload| matches!(payload, Payload::Sync(_))).await;
    kill(Pid::from_raw(i32::try_from(first.child.id()).unwrap()), signal).unwrap();
    let begun = Instant::now();
    until(&mut watch, |payload| matches!(payload, Payload::TurnRecovered(_))).await;
    let stood = begun.elapsed();
    turns
        .cancel_turn(pb::CancelTurnRequest { session_id: session.to_owned(), ..pb::CancelTurnRequest::default() })
        .await
        .unwrap();
    stood
}

async fn until(stream: &mut Streaming<pb::WatchEventsResponse>, wanted: impl Fn(&Payload) -> bool) {
    while let Some(message) = stream.message().await.unwrap() {
        if message.event.and_then(|event| event.payload).is_some_and(|payload| wanted(&payload)) {
            return;
        }
    }
}
