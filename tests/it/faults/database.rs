//! PostgreSQL goes away and comes back: crashed, stopped, silent, or as another server that may or
//! may not take writes.

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

/// A PostgreSQL of its own with a contextd before it that finds it wherever it is started again.
async fn scene(settings: &str) -> (Cluster, Link, Served, Place) {
    let cluster = Cluster::start(&[]).await;
    let place = Place::new(settings)
        .script("slow", &slow())
        .script("tools", &two_tools());
    let link = Link::to(cluster.target()).await;
    let served = place.serve_over(&link.database(&cluster.database())).await;
    (cluster, link, served, place)
}

/// Turns under way, PostgreSQL ended by a signal and started again a while later: every turn is
/// told to its end.
async fn outage(signal: Signal, down: Duration) {
    let (mut cluster, link, served, _place) = scene(PATIENT).await;
    let mut ready = served.health().await;
    let mut live = served.watch_health("liveness").await;
    becomes(&mut ready, ServingStatus::Serving).await;
    becomes(&mut live, ServingStatus::Serving).await;
    let mut hosts: Vec<Survivor> = (0..6)
        .map(|n| {
            Survivor::new(asking(
                ["scripted/slow", "scripted/tools"][n % 2],
                &format!("chat-{n}"),
            ))
        })
        .collect();
    for host in &mut hosts {
        host.send_to(&served).await.unwrap();
        host.until(|payload| matches!(payload, Payload::StepStarted(_)))
            .await;
    }
    cluster.end(signal).await;
    becomes(&mut ready, ServingStatus::NotServing).await;
    let begun = Instant::now();
    let refused = served
        .turns()
        .await
        .execute_turn(turn("late", "scripted/slow", "Go"))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), refusal(&refused).reason.as_str()),
        (Code::Unavailable, "DATABASE_UNAVAILABLE")
    );
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "a refusal took {:?}",
        begun.elapsed()
    );
    tokio::time::sleep(down).await; // how long it is down
    cluster.restart().await;
    link.lead_to(cluster.target());
    becomes(&mut ready, ServingStatus::Serving).await;
    all(hosts
        .iter_mut()
        .map(async |host| host.survive(&[&served]).await))
    .await;
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

/// A probe's look at a page of the admin port.
async fn probe(admin: u16, page: &str) -> u16 {
    let answer = reqwest::get(format!("http://127.0.0.1:{admin}{page}")).await;
    answer.unwrap().status().as_u16()
}

/// Row F5. A minute is longer than the lease, so that no turn runs on: each is taken over when the
/// database is back, by the same process.
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
        host.until(|payload| matches!(payload, Payload::StepStarted(_)))
            .await;
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
        assert_eq!(
            (refused.code(), refusal(&refused).reason.as_str()),
            (Code::Unavailable, "DATABASE_UNAVAILABLE")
        );
        assert!(refused.get_error_details().retry_info().is_some());
        tokio::time::sleep(Duration::from_millis(500)).await; // between two probes
    }
    cluster.restart().await;
    link.lead_to(cluster.target());
    becomes(&mut ready, ServingStatus::Serving).await;
    assert_eq!(probe(admin, "/readyz").await, 200);
    all(hosts
        .iter_mut()
        .map(async |host| host.survive(&[&served]).await))
    .await;
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
    let mut hosts: Vec<Survivor> = (0..4)
        .map(|n| Survivor::new(asking("scripted/slow", &format!("chat-{n}"))))
        .collect();
    for host in &mut hosts {
        host.send_to(&served).await.unwrap();
        host.until(|payload| matches!(payload, Payload::TextDelta(_)))
            .await;
    }
    link.strand();
    let stranded = Instant::now();
    all(hosts
        .iter_mut()
        .map(async |host| host.survive(&[&served]).await))
    .await;
    // A statement may take 2 s here, and its answer 2 s more.
    assert!(
        stranded.elapsed() < Duration::from_secs(15),
        "noticed only after {:?}",
        stranded.elapsed()
    );
    for host in &hosts {
        check_slow(host, &served).await;
    }
}

/// Row F11: where replication is not at hand, a server that takes no writes any more stands for the
/// old primary, and the same data at another address for the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_another_address_loses_nothing_and_writes_nothing_to_the_old_one() {
    eprintln!(
        "skipped: streaming replication; the old primary is a server that was made read-only"
    );
    let (mut cluster, link, served, _place) = scene(PATIENT).await;
    let mut ready = served.health().await;
    becomes(&mut ready, ServingStatus::Serving).await;
    let mut hosts: Vec<Survivor> = (0..4)
        .map(|n| {
            Survivor::new(asking(
                ["scripted/slow", "scripted/tools"][n % 2],
                &format!("chat-{n}"),
            ))
        })
        .collect();
    for host in &mut hosts {
        host.send_to(&served).await.unwrap();
        host.until(|payload| matches!(payload, Payload::StepStarted(_)))
            .await;
    }
    let old = cluster.database().client().await;
    for order in [
        "alter system set default_transaction_read_only = on",
        "select pg_reload_conf()",
    ] {
        old.batch_execute(order).await.unwrap();
    }
    // PostgreSQL reads its settings again a moment later: until then it still admits turns.
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
    assert_eq!(
        (refused.code(), refusal(&refused).reason.as_str()),
        (Code::Unavailable, "DATABASE_UNAVAILABLE")
    );
    for order in [
        "set default_transaction_read_only = off",
        "alter system reset default_transaction_read_only",
    ] {
        old.batch_execute(order).await.unwrap();
    }
    cluster.end(Signal::SIGINT).await;
    cluster.restart().await;
    link.lead_to(cluster.target());
    all(hosts
        .iter_mut()
        .map(async |host| host.survive(&[&served]).await))
    .await;
    for host in &hosts {
        host.check_story(&served).await;
    }
    assert_eq!(last_words(&hosts[1]), "fine fine");
}
