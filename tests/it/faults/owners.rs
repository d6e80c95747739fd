//! Owners that die, freeze, or lose their connection to the database, and turns that crash their owner.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use contextd::{
    model::Prompt,
    pb::{self, event::Payload, queue_service_client::QueueServiceClient},
    provider::{Provider, ResponseStream, info::ModelInfo},
};
use nix::sys::signal::Signal;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::harness::{
    Host, Options, TestDatabase,
    events::{completed, failed, kinds},
    host::until,
    process::Place,
    proxy::{CutPoint, Traffic},
    requests::{enqueue, turn},
    survivor::{SHORT_LEASE, Survivor, asking, becomes, events, is_end, pair, recoveries, slow},
};

use super::{QUICK, WORDS, becomes_true, check_slow, commits::behind, last_words};

const STUCK: &str =
    "select exists(select from pg_stat_activity where datname = current_database() and state = 'idle in transaction')";

/// Row F3
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_paused_past_its_lease_writes_nothing_when_it_resumes() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE).script("slow", &slow());
    let (first, second) = pair(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&first).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    first.signal(Signal::SIGSTOP);
    host.send_to(&second).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TurnRecovered(_))).await;
    first.signal(Signal::SIGCONT); // both replicas are in the middle of the response
    while host.next().await.unwrap().is_some() {}
    check_slow(&host, &second).await;
    assert_eq!(recoveries(&host.seen), [(pb::RecoveryCause::LeaseExpired, 2)]);
    // The replica that was resumed keeps serving.
    let mut next = Survivor::new(asking("scripted/slow", "chat-2"));
    next.survive(&[&first]).await;
    check_slow(&next, &first).await;
}

/// Row F4: the end of a turn and the start of the next turn are two statements of one transaction.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_dies_in_a_transaction_does_not_block_others() {
    let database = TestDatabase::new().await;
    let place = Place::new(QUICK).script("slow", &slow());
    let (link, first) = behind(&place, &database).await;
    let second = place.serve_over(&database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&first).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    let next = pb::EnqueueMessageRequest {
        delivery: pb::Delivery::WhenIdle.into(),
        on_idle: pb::IdleAction::StartTurn.into(),
        ..enqueue("chat", "Go on")
    };
    let mut queue = QueueServiceClient::new(first.channel().await);
    queue.enqueue_message(next).await.unwrap();
    link.strand_at_commit(CutPoint::Before); // it holds its locks, and its commit never arrives
    link.was_cut(1).await;
    first.signal(Signal::SIGSTOP);
    becomes_true(&database.client().await, STUCK).await;
    let stuck = Instant::now();
    host.send_to(&second).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TurnRecovered(_))).await;
    eprintln!("taken over {:?} after the transaction was left", stuck.elapsed());
    assert!(stuck.elapsed() < Duration::from_secs(5));
    while host.next().await.unwrap().is_some() {}
    assert_eq!(last_words(&host), WORDS);
    until("the next turn to end", || async {
        let all = events(&second, "chat").await;
        all.iter().filter(|event| is_end(event)).count() == 2
    })
    .await;
    first.signal(Signal::SIGCONT);
}

/// Row F39
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_cut_off_from_the_database_gives_up_its_leases_by_its_own_clock() {
    let database = TestDatabase::new().await;
    let place = Place::new(QUICK).script("slow", &slow());
    let (link, first) = behind(&place, &database).await;
    let second = place.serve_over(&database).await;
    let mut ready = first.health().await;
    let mut live = first.watch_health("liveness").await;
    becomes(&mut ready, ServingStatus::Serving).await;
    becomes(&mut live, ServingStatus::Serving).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&first).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    link.all_traffic(Traffic::Stalls);
    let cut_off = Instant::now();
    let mut told = Vec::new();
    // The stream may continue for less than a lease. Then it stalls or ends.
    while let Ok(Ok(Some(event))) = tokio::time::timeout(Duration::from_secs(2), host.next()).await {
        if matches!(event.payload, Some(Payload::TextDelta(_))) {
            told.push(cut_off.elapsed());
        }
    }
    assert!(told.last().is_none_or(|last| *last < Duration::from_secs(1)), "it spoke beyond its lease: {told:?}");
    becomes(&mut ready, ServingStatus::NotServing).await;
    let alive = tokio::time::timeout(Duration::from_millis(10), live.message()).await;
    assert!(alive.is_err(), "liveness changed: {alive:?}");
    host.survive(&[&second]).await;
    check_slow(&host, &second).await;
    assert_eq!(recoveries(&host.seen), [(pb::RecoveryCause::LeaseExpired, 2)]);

    link.all_traffic(Traffic::Flows);
    becomes(&mut ready, ServingStatus::Serving).await;
    let mut next = Survivor::new(asking("scripted/slow", "chat-2"));
    next.survive(&[&first]).await;
    check_slow(&next, &first).await;
}

/// A model that makes its caller panic.
#[derive(Debug)]
struct Breaks;

impl Provider for Breaks {
    fn kind(&self) -> &'static str {
        "breaks"
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        Some(ModelInfo::unknown(name))
    }

    fn models(&self) -> Vec<ModelInfo> {
        Vec::new()
    }

    fn call(&self, _: Arc<Prompt>) -> ResponseStream {
        panic!("a defect, on purpose")
    }
}

/// Row F29
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_crashes_every_owner_is_failed_and_harms_no_other() {
    let options = || {
        let lease = Duration::from_millis(500);
        let breaks = Options { lease, max_takeovers: 2, ..Options::default() }.provider("broken", Arc::new(Breaks));
        breaks.script("fine", r#"{"steps": [{"say": [{"text": "Fine."}]}]}"#)
    };
    let host = Host::with(options()).await;
    let other = host.beside(options()).await;
    let poisoned = tokio::spawn(async move { (host.run(turn("poison", "broken/x", "Go")).await, host) });
    for n in 0..5 {
        let seen = other.run(turn(&format!("well-{n}"), "scripted/fine", "Go")).await;
        completed(&seen);
    }
    let (seen, host) = poisoned.await.unwrap();
    assert_eq!(failed(&seen).failure.as_ref().unwrap().reason(), pb::FailureReason::Poisoned, "{:?}", kinds(&seen));
    assert_eq!(kinds(&seen).iter().filter(|kind| **kind == "turn_recovered").count(), 3, "{:?}", kinds(&seen));
    completed(&host.run(turn("poison", "scripted/fine", "Go on")).await);
}

/// Makes a loop of the workers panic in each round.
fn panicking(sql: &'static str) -> &'static str {
    assert!(!sql.contains("store::lease::candidates"), "a defect");
    sql
}

/// Row F44
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_a_loop_that_cannot_go_on_ends() {
    let options = crate::harness::Options { replace: Some(panicking), ..crate::harness::Options::default() };
    let (_database, replica) = crate::harness::Replica::alone(options).await;
    crate::harness::host::until("the replica to end", || async {
        tokio::net::TcpStream::connect(replica.address).await.is_err()
    })
    .await;
}

/// Row F44
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_admin_port_ends_ends() {
    let options = crate::harness::Options { breaks_admin_port: true, ..crate::harness::Options::default() };
    let (_database, replica) = crate::harness::Replica::alone(options).await;
    assert!(replica.scrape().await.contains("contextd_ready"));
    replica.break_admin_port();
    crate::harness::host::until("the replica to end", || async {
        tokio::net::TcpStream::connect(replica.address).await.is_err()
    })
    .await;
}
