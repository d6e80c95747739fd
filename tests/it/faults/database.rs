//! PostgreSQL fails and returns: crashed, stopped, unresponsive, or as another server that may or may not accept
//! writes.

use std::time::{Duration, Instant};

use contextd::pb::{self, event::Payload};
use nix::sys::signal::Signal;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_types::StatusExt as _;

use crate::harness::{
    TestDatabase,
    cluster::Cluster,
    errors::refusal,
    process::{Place, Served},
    proxy::Link,
    requests::turn,
    survivor::{Survivor, asking, becomes, recoveries, slow, two_tools},
};

use super::{PATIENT, all, check_slow, commits::behind, last_words};

/// A separate PostgreSQL, and a contextd that reaches it through a link wherever it is restarted.
async fn scene(settings: &str) -> (Cluster, Link, Served, Place) {
    let cluster = Cluster::start(&[]).await;
    let place = Place::new(settings).script("slow", &slow()).script("tools", &two_tools());
    let link = Link::to(cluster.target()).await;
    let served = place.serve_over(&link.database(&cluster.database())).await;
    (cluster, link, served, place)
}

/// Ends PostgreSQL with a signal while turns run, and restarts it later. Every turn must complete for its client.
async fn outage(signal: Signal, down: Duration) {
    let (mut cluster, link, served, _place) = scene(PATIENT).await;
    let mut ready = served.health().await;
    let mut live = served.watch_health("liveness").await;
    becomes(&mut ready, ServingStatus::Serving).await;
    becomes(&mut live, ServingStatus::Serving).await;
    let mut hosts: Vec<Survivor> = (0..6)
        .map(|n| Survivor::new(asking(["scripted/slow", "scripted/tools"][n % 2], &format!("chat-{n}"))))
        .collect();
    for host in &mut hosts {
        host.send_to(&served).await.unwrap();
        host.until(|payload| matches!(payload, Payload::StepStarted(_))).await;
    }
    cluster.end(signal).await;
    becomes(&mut ready, ServingStatus::NotServing).await;
    let begun = Instant::now();
    let refused = served.turns().await.execute_turn(turn("late", "scripted/slow", "Go")).await.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused).reason.as_str()), (Code::Unavailable, "DATABASE_UNAVAILABLE"));
    assert!(begun.elapsed() < Duration::from_secs(5), "a refusal took {:?}", begun.elapsed());
    tokio::time::sleep(down).await; // the duration of the outage
    cluster.restart().await;
    link.lead_to(cluster.target());
    becomes(&mut ready, ServingStatus::Serving).await;
    all(hosts.iter_mut().map(async |host| host.survive(&[&served]).await)).await;
    for host in &hosts {
        host.check_story(&served).await;
        for (cause, _) in recoveries(&host.seen) {
            assert_eq!(cause, pb::RecoveryCause::HandedOver, "no lease ran out");
        }
    }
    let alive = tokio::time::timeout(Duration::from_millis(10), live.message()).await;
    assert!(alive.is_err(), "liveness changed: {alive:?}");
}

/// Row F5
#[tokio::test(flavor = "multi_thread")]
async fn turns_survive_a_crash_of_postgresql() {
    outage(Signal::SIGQUIT, Duration::from_secs(2)).await;
}

/// Row F6
#[tokio::test(flavor = "multi_thread")]
async fn turns_survive_a_restart_of_postgresql() {
    outage(Signal::SIGINT, Duration::ZERO).await;
}

/// The status code of a page of the admin port.
async fn probe(admin: u16, page: &str) -> u16 {
    let answer = reqwest::get(format!("http://127.0.0.1:{admin}{page}")).await;
    answer.unwrap().status().as_u16()
}

/// Row F5. A minute is longer than the lease, so no turn continues during the outage: each is taken over by the same
/// process when the database returns.
#[tokio::test(flavor = "multi_thread")]
async fn a_minute_without_postgresql_needs_no_restart() {
    const DOWN: Duration = Duration::from_secs(60);
    let admin = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let settings = format!("[server]\nadmin_listen = '127.0.0.1:{admin}'\n");
    let (mut cluster, link, served, _place) = scene(&settings).await;
    let pid = served.pid();
    let mut ready = served.health().await;
    becomes(&mut ready, ServingStatus::Serving).await;
    let mut hosts: Vec<Survivor> = (0..4)
        .map(|n| {
            let model = ["scripted/slow", "scripted/tools"][n % 2];
            Survivor::new(asking(model, &format!("chat-{n}")))
        })
        .collect();
    for host in &mut hosts {
        host.send_to(&served).await.unwrap();
        host.until(|payload| matches!(payload, Payload::StepStarted(_))).await;
    }
    cluster.end(Signal::SIGINT).await;
    becomes(&mut ready, ServingStatus::NotServing).await;
    let begun = Instant::now();
    while begun.elapsed() < DOWN {
        assert_eq!(probe(admin, "/livez").await, 200);
        assert_eq!(probe(admin, "/readyz").await, 503);
        let request = turn("late", "scripted/slow", "Go");
        let refused = served.turns().await.execute_turn(request).await;
        let refused = refused.unwrap_err();
        assert_eq!((refused.code(), refusal(&refused).reason.as_str()), (Code::Unavailable, "DATABASE_UNAVAILABLE"));
        assert!(refused.get_error_details().retry_info().is_some());
        tokio::time::sleep(Duration::from_millis(500)).await; // the interval of the probes
    }
    cluster.restart().await;
    link.lead_to(cluster.target());
    becomes(&mut ready, ServingStatus::Serving).await;
    assert_eq!(probe(admin, "/readyz").await, 200);
    all(hosts.iter_mut().map(async |host| host.survive(&[&served]).await)).await;
    for host in &hosts {
        host.check_story(&served).await;
    }
    assert_eq!(probe(admin, "/livez").await, 200);
    assert_eq!(served.pid(), pid);
}

/// Row F9
#[tokio::test(flavor = "multi_thread")]
async fn silently_dead_connections_are_detected_and_replaced() {
    let database = TestDatabase::new().await;
    let place = Place::new(PATIENT).script("slow", &slow());
    let (link, served) = behind(&place, &database).await;
    let mut ready = served.health().await;
    becomes(&mut ready, ServingStatus::Serving).await;
    let mut hosts: Vec<Survivor> =
        (0..4).map(|n| Survivor::new(asking("scripted/slow", &format!("chat-{n}")))).collect();
    for host in &mut hosts {
        host.send_to(&served).await.unwrap();
        host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    }
    link.strand();
    let stranded = Instant::now();
    all(hosts.iter_mut().map(async |host| host.survive(&[&served]).await)).await;
    // A statement may take 2 s here, and its response another 2 s.
    assert!(stranded.elapsed() < Duration::from_secs(15), "noticed only after {:?}", stranded.elapsed());
    for host in &hosts {
        check_slow(host, &served).await;
    }
}

/// Row F11: without replication, a server that no longer accepts writes represents the old primary, and the same data
/// at another address represents the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_another_address_loses_nothing_and_writes_nothing_to_the_old_one() {
    eprintln!("skipped: streaming replication; the old primary is a server that was made read-only");
    let (mut cluster, link, served, _place) = scene(PATIENT).await;
    let mut ready = served.health().await;
    becomes(&mut ready, ServingStatus::Serving).await;
    let mut hosts: Vec<Survivor> = (0..4)
        .map(|n| Survivor::new(asking(["scripted/slow", "scripted/tools"][n % 2], &format!("chat-{n}"))))
        .collect();
    for host in &mut hosts {
        host.send_to(&served).await.unwrap();
        host.until(|payload| matches!(payload, Payload::StepStarted(_))).await;
    }
    let old = cluster.database().client().await;
    for order in ["alter system set default_transaction_read_only = on", "select pg_reload_conf()"] {
        old.batch_execute(order).await.unwrap();
    }
    // PostgreSQL reloads its settings a moment later. Until then it admits turns.
    let refused = async {
        for n in 0.. {
            let late = turn(&format!("late-{n}"), "scripted/slow", "Go");
            if let Err(status) = served.turns().await.execute_turn(late).await {
                return status;
            }
        }
        unreachable!("PostgreSQL takes writes for ever")
    };
    let refused = refused.await;
    assert_eq!((refused.code(), refusal(&refused).reason.as_str()), (Code::Unavailable, "DATABASE_UNAVAILABLE"));
    for order in ["set default_transaction_read_only = off", "alter system reset default_transaction_read_only"] {
        old.batch_execute(order).await.unwrap();
    }
    cluster.end(Signal::SIGINT).await;
    cluster.restart().await;
    link.lead_to(cluster.target());
    all(hosts.iter_mut().map(async |host| host.survive(&[&served]).await)).await;
    for host in &hosts {
        host.check_story(&served).await;
    }
    assert_eq!(last_words(&hosts[1]), "fine fine");
}
