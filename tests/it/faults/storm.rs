//! Everybody comes back at once.

use std::time::Instant;

use contextd::pb::event::Payload;

use crate::harness::{
    TestDatabase,
    process::Place,
    survivor::{SHORT_LEASE, Survivor, asking, pair, slow},
};

use super::{all, check_slow};

/// Row F25
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_clients_that_resume_at_once_after_a_kill_all_get_the_whole_story() {
    const TURNS: usize = 10;
    const EACH: usize = 30;
    let (database, place) = (TestDatabase::new().await, Place::new(SHORT_LEASE).script("slow", &slow()));
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
    first.kill_9().await;
    let begun = Instant::now();
    all(hosts.iter_mut().map(async |host| host.survive(&[&second]).await)).await;
    eprintln!("{} clients had the whole story {:?} after the kill", TURNS * EACH, begun.elapsed());
    for host in hosts.iter().step_by(7) {
        check_slow(host, &second).await;
    }
}
