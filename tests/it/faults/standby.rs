//! Synchronous replication: commits wait for a standby.

use contextd::pb::{self, event::Payload};
use tokio_postgres::Client;
use tonic::Code;

use crate::harness::{
    cluster::Cluster,
    errors::refusal,
    host::until,
    process::Place,
    survivor::{Survivor, asking, slow},
};

use super::{PATIENT, becomes_true, check_slow};

/// Maximum connections of one replica: its pool, two for heartbeats, one that listens, and one that checks whether
/// commits wait.
const MOST: i64 = 16 + 2 + 1 + 1;

async fn set(client: &Client, order: &str) {
    client.batch_execute(order).await.unwrap();
    client.batch_execute("select pg_reload_conf()").await.unwrap();
}

/// A CreateSession request with a session id and a request id.
fn create(id: &str) -> pb::CreateSessionRequest {
    pb::CreateSessionRequest {
        session: Some(pb::Session { session_id: id.to_owned(), ..pb::Session::default() }),
        request_id: id.to_owned(),
    }
}

/// Row F42: the standby is unavailable.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_standby_has_is_neither_shown_nor_acknowledged() {
    let replicated = [("wal_level", "replica"), ("max_wal_senders", "1")];
    let cluster = Cluster::start(&replicated).await;
    let place = Place::new(PATIENT).script("slow", &slow());
    let served = place.serve_over(&cluster.database()).await;
    let look = cluster.database().client().await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    set(&look, "alter system set synchronous_standby_names = 'ghost'").await;
    becomes_true(&look, "select current_setting('synchronous_standby_names') = 'ghost'").await;

    // Once a commit of this test waits, all other commits wait too.
    let probe = cluster.database().client().await;
    let probe = tokio::spawn(async move { probe.batch_execute("create table probe ()").await });
    becomes_true(&look, "select count(*) > 0 from pg_stat_activity where wait_event = 'SyncRep'").await;

    // A statement may take 2 s here, and its response another 2 s.
    for attempt in 1..=3 {
        let status = served
            .sessions()
            .await
            .create_session(create("made"))
            .await
            .expect_err(&format!("attempt {attempt} was acknowledged"));
        assert_eq!(status.code(), Code::Unavailable, "attempt {attempt}: {status:?}");
    }
    // A client that disconnects.
    let mut hasty = tonic::Request::new(create("hasty"));
    hasty.set_timeout(std::time::Duration::from_millis(200));
    let _ = served.sessions().await.create_session(hasty).await;
    becomes_true(
        &look,
        "select count(*) >= 3 from pg_stat_activity where wait_event = 'SyncRep' and now() - xact_start > '5 s'",
    )
    .await;
    let counts = look
        .query_one(
            "select (select count(*) from sessions where session_id in ('made', 'hasty')),
                    (select count(*) from events where kind = 'turn_completed'),
                    (select count(*) from pg_stat_activity where application_name = 'contextd')",
            &[],
        )
        .await
        .unwrap();
    let (made, completed, connections): (i64, i64, i64) = (counts.get(0), counts.get(1), counts.get(2));
    assert_eq!((made, completed), (0, 0), "shown, and no standby has it");
    assert!(connections <= MOST, "{connections} connections");

    set(&look, "alter system reset synchronous_standby_names").await;
    until("the session to be made", || async {
        match served.sessions().await.create_session(create("made")).await {
            Ok(made) => made.into_inner().session.unwrap().session_id == "made",
            Err(status) => {
                assert_ne!(refusal(&status).reason, "INTERNAL");
                false
            }
        }
    })
    .await;
    probe.await.unwrap().unwrap();
    host.survive(&[&served]).await;
    check_slow(&host, &served).await;
}
