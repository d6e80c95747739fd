//! All clients reconnect at once.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use contextd::pb::event::Payload;
use serde_json::json;

use crate::harness::{
    TestDatabase,
    errors::refusal,
    events::{all as read, completed},
    process::{Place, Served},
    requests::turn,
    survivor::{SHORT_LEASE, Survivor, asking, pair, slow},
};

use super::{all, check_slow};

const TURNS: usize = 10;
/// Clients per turn. Set the variable at build time to run with 2,000 clients in total.
const EACH: usize = if option_env!("STORM_OF_THOUSANDS").is_some() { 200 } else { 30 };
/// Number of turns that are timed without load.
const TIMED: usize = 20;

/// The durations of consecutive short turns, until `enough` returns true, sorted in ascending order.
async fn timed(served: &Served, name: &str, enough: impl Fn(usize) -> bool) -> Vec<Duration> {
    let mut turns = served.turns().await;
    let mut times = Vec::new();
    while !enough(times.len()) {
        let begun = Instant::now();
        let request = turn(&format!("{name}-{}", times.len()), "scripted/quick", "Go");
        let mut stream = loop {
            match turns.execute_turn(request.clone()).await {
                Ok(stream) => break stream.into_inner(),
                // Refused because others wait: retries like a client.
                Err(status) => assert_eq!(refusal(&status).reason, "OVERLOADED", "{status:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        completed(&read(&mut stream).await);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times
}

/// Row F25
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_clients_that_resume_at_once_all_get_every_event() {
    let quick = json!({ "steps": [{ "say": [{ "text": "Fine." }] }] });
    let place = Place::new(SHORT_LEASE).script("slow", &slow()).script("quick", &quick);
    let database = TestDatabase::new().await;
    let (first, second) = pair(&place, &database).await;
    let mut hosts = Vec::new();
    for n in 0..TURNS {
        let request = asking("scripted/slow", &format!("chat-{n}"));
        hosts.extend((0..EACH).map(|_| Survivor::new(request.clone())));
    }
    for host in hosts.iter_mut().step_by(EACH) {
        host.send_to(&first).await.unwrap();
        host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    }
    let in_peace = timed(&second, "peace", |times| times == TIMED).await;
    first.kill_9().await;
    let begun = Instant::now();
    let over = AtomicBool::new(false);
    let storm = async {
        all(hosts.iter_mut().map(async |host| host.survive(&[&second]).await)).await;
        over.store(true, Ordering::Relaxed);
    };
    let (in_storm, ()) = tokio::join!(timed(&second, "storm", |_| over.load(Ordering::Relaxed)), storm);
    let worst = |times: &[Duration]| times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    eprintln!("{} clients had the whole story {:?} after the kill", TURNS * EACH, begun.elapsed());
    eprintln!(
        "p99 of other turns: {:?} of {}, {:?} of {} meanwhile",
        worst(&in_peace),
        in_peace.len(),
        worst(&in_storm),
        in_storm.len()
    );
    for host in hosts.iter().step_by(7) {
        check_slow(host, &second).await;
    }
}
