//! A database that has fewer connections than the replicas want.

use std::time::Duration;

use contextd::pb;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::harness::{
    Host, Options, Replica, TestDatabase, as_worker,
    cluster::Cluster,
    events::outline,
    host::{MODEL, answering, until as eventually},
    process::Place,
    requests::turn,
    survivor::{Survivor, asking, becomes, slow, two_tools},
};

use super::{all, becomes_true, free_port};

/// Connections of contextd in the database.
const OURS: &str = "from pg_stat_activity where datname = current_database() and application_name = 'contextd'";

fn hosts(count: usize, prefix: &str) -> Vec<Survivor> {
    let host = |n: usize| {
        let model = ["scripted/slow", "scripted/tools"][n % 2];
        Survivor::new(asking(model, &format!("{prefix}-{n}")))
    };
    (0..count).map(host).collect()
}

/// Row F43
#[tokio::test(flavor = "multi_thread")]
async fn turns_of_a_replica_that_gets_three_connections_end() {
    // One for the test, and all but three of the others for the first replica.
    let cluster = Cluster::with_connections(12, &[("superuser_reserved_connections", "0")]).await;
    let look = cluster.database().client().await;
    let admin = free_port();
    let large = Place::new("[turn]\nlease_ttl = '5s'\n[database]\npool_size = 5\n")
        .script("slow", &slow())
        .script("tools", &two_tools());
    let small = Place::new(&format!(
        "[turn]\nlease_ttl = '5s'\n[database]\npool_size = 8\n[server]\nadmin_listen = '127.0.0.1:{admin}'\n"
    ))
    .script("slow", &slow())
    .script("tools", &two_tools());
    let first = large.serve_over(&cluster.database()).await;
    let mut before = hosts(24, "before");
    all(before.iter_mut().map(async |host| host.survive(&[&first]).await)).await;
    becomes_true(&look, &format!("select count(*) >= 7 {OURS}")).await;
    let second = small.serve_over(&cluster.database()).await;
    let mut turns = hosts(8, "chat");
    all(turns.iter_mut().map(async |host| host.survive(&[&second]).await)).await;
    for host in &turns {
        host.check_story(&second).await;
    }
    let page = reqwest::get(format!("http://127.0.0.1:{admin}/metrics"));
    let page = page.await.unwrap().text().await.unwrap();
    let refused = page.lines().find(|line| {
        line.starts_with("contextd_database_connect_failures_total{")
            && line.contains("error_type=\"no_connection_left\"")
    });
    let refused = refused.expect("the metric is not there");
    assert!(!refused.ends_with(" 0"), "{refused}");
}

/// Row F43: connections that a burst needed are soon available again.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_nothing_uses_are_closed() {
    let database = TestDatabase::new().await;
    let look = database.client().await;
    let place = Place::new("[database]\npool_size = 8\nidle_timeout = '300ms'\n")
        .script("slow", &slow())
        .script("tools", &two_tools());
    let served = place.serve_over(&database).await;
    let mut turns = hosts(16, "chat");
    let many = async { becomes_true(&look, &format!("select count(*) > 6 {OURS}")).await };
    tokio::join!(many, all(turns.iter_mut().map(async |host| host.survive(&[&served]).await)));
    // One per pool, and the listening connection.
    becomes_true(&look, &format!("select count(*) <= 3 {OURS}")).await;
}

/// Row F43: no task holds a connection while it waits for a second one. The entire suite can run this way with
/// `CONTEXTD_TEST_POOL_SIZE=1`.
#[tokio::test(flavor = "multi_thread")]
async fn turns_run_with_a_pool_of_one() {
    let database = TestDatabase::new().await;
    let place = Place::new("[database]\npool_size = 1\n").script("slow", &slow()).script("tools", &two_tools());
    let (first, second) = crate::harness::survivor::pair(&place, &database).await;
    let mut turns = hosts(24, "chat");
    let replicas = [&first, &second];
    all(turns.iter_mut().enumerate().map(async |(n, host)| host.survive(&[replicas[n % 2]]).await)).await;
    for host in &turns {
        host.check_story(&first).await;
        assert_eq!(crate::harness::survivor::recoveries(&host.seen), []);
    }
}

/// Makes the statement that reads a turn terminate its connection.
fn unreadable(sql: &'static str) -> &'static str {
    if sql.contains("store::turn_read::owned") {
        let broken = sql.replacen("select ", "select pg_terminate_backend(pg_backend_pid()), ", 1);
        broken.leak()
    } else {
        sql
    }
}

/// Row F43: heartbeats reach the database, reads do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_its_owner_cannot_read_is_left_to_another_replica() {
    let options = || Options {
        lease: Duration::from_secs(3),
        max_takeovers: 1000,
        ..answering(&[serde_json::json!([{"text": "Hello."}])])
    };
    let broken = Options { session_memory: 0, replace: Some(unreadable), ..options() };
    let first = Host::with(broken).await;
    let second = first.beside(options()).await;
    let _stream = first.execute(turn("s", MODEL, "Hi")).await;
    eventually("another replica to answer", || async {
        let session = second.session("s").await;
        session.state() == pb::SessionState::Idle
    })
    .await;
    assert_eq!(outline(&second.messages("s").await), ["USER: \"Hi\"", "ASSISTANT: \"Hello.\""]);
}

/// Row F43: leases and heartbeats reach the database, requests do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_a_connection_for_requests_is_not_ready() {
    const PATIENCE: Duration = Duration::from_secs(2);
    let cluster = Cluster::start(&[]).await;
    let options = Options { row_security: true, ..Options::default() };
    let replica = Replica::start(&cluster.database(), options).await;
    let service = "readiness".to_owned();
    let mut client = HealthClient::new(replica.channel().await);
    let watched = client.watch(HealthCheckRequest { service }).await;
    let mut health = watched.unwrap().into_inner();
    becomes(&mut health, ServingStatus::Serving).await;

    let look = cluster.database().client().await;
    look.batch_execute("alter role contextd_tenant rename to renamed").await.unwrap();
    let end = format!("select pg_terminate_backend(pid) {OURS}");
    look.batch_execute(&end).await.unwrap();
    becomes(&mut health, ServingStatus::NotServing).await;
    let store = replica.engine.store();
    let leases_work = || async { as_worker(store.limits_version()).await.is_ok() };
    eventually("the reserved connections to be made anew", leases_work).await;
    let pinged = as_worker(store.ping(PATIENCE)).await;
    assert!(pinged.is_err() && leases_work().await, "{pinged:?}");

    look.batch_execute("alter role renamed rename to contextd_tenant").await.unwrap();
    becomes(&mut health, ServingStatus::Serving).await;
    as_worker(store.ping(PATIENCE)).await.unwrap();
}
