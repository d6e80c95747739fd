//! A connection pooler that assigns each transaction another connection.

use std::time::Duration;

use contextd::pb::{self, event::Payload};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::harness::{
    TestDatabase,
    pooler::Pooler,
    process::Place,
    survivor::{Survivor, asking, becomes, recoveries, slow, two_tools},
};

use super::{PATIENT, all, last_words};

fn place(pooled: bool) -> Place {
    let settings = format!("{PATIENT}transaction_pooler = {pooled}\n");
    Place::new(&settings).script("tools", &two_tools()).script("slow", &slow())
}

/// Row F37
#[tokio::test(flavor = "multi_thread")]
async fn turns_run_through_a_transaction_pooler() {
    let database = TestDatabase::new().await;
    let pooler = Pooler::before(&database).await;
    let place = place(true);
    let pooled = pooler.database(&database);
    let (first, second) = tokio::join!(place.serve_over(&pooled), place.serve_over(&pooled));
    becomes(&mut first.health().await, ServingStatus::Serving).await;
    let before = pooler.transactions();
    let mut hosts: Vec<Survivor> = (0..12)
        .map(|n| Survivor::new(asking(["scripted/slow", "scripted/tools"][n % 2], &format!("chat-{n}"))))
        .collect();
    let replicas = [&first, &second];
    // In parallel, calls are cancelled at random moments. A connection that is left in a transaction must not affect
    // another client.
    let sessions = first.sessions().await;
    let done = CancellationToken::new();
    let hasty = async {
        for n in (0..).take_while(|_| !done.is_cancelled()) {
            let mut request = tonic::Request::new(pb::ListSessionsRequest::default());
            request.set_timeout(Duration::from_micros(500 * (1 + n % 10)));
            if let Err(status) = sessions.clone().list_sessions(request).await {
                assert_ne!(status.code(), Code::Internal, "{status:?}");
            }
        }
    };
    let stories = async {
        all(hosts.iter_mut().enumerate().map(async |(n, host)| host.survive(&[replicas[n % 2]]).await)).await;
        done.cancel();
    };
    tokio::join!(hasty, stories);
    for host in &hosts {
        host.check_story(&second).await;
        assert_eq!(recoveries(&host.seen), []);
    }
    assert_eq!(last_words(&hosts[1]), "fine fine");
    assert!(pooler.transactions() > before + 100, "hardly anything went through the pooler");
}

/// Row F37: the setting is required.
#[tokio::test(flavor = "multi_thread")]
async fn without_transaction_pooler_set_a_pooler_is_detected_and_refused() {
    let database = TestDatabase::new().await;
    let pooler = Pooler::before(&database).await;
    let output = place(false).run_over(&pooler.database(&database), "serve").await;
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("unsupported startup parameter: options"), "{told}");
    assert!(told.contains("database.transaction_pooler"), "{told}");
}

/// Row F37: a pooler that ignores settings that it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_ignores_the_settings_of_connections_is_refused_with_the_settings_name() {
    let database = TestDatabase::new().await;
    let pooler = Pooler::that_ignores_settings(&database).await;
    let output = place(false).run_over(&pooler.database(&database), "serve").await;
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("database.transaction_pooler"), "{told}");
}

/// Row F37: the connections have prepared statements of a client without the setting.
#[tokio::test(flavor = "multi_thread")]
async fn statements_that_were_left_on_the_connections_of_a_pooler_are_removed() {
    let database = TestDatabase::new().await;
    let pooler = Pooler::before(&database).await;
    let pooled = pooler.database(&database);
    let names: Vec<String> = (0..300).map(|n| format!("prepare s{n} as select 1;")).collect();
    let other = pooled.client().await;
    for _ in 0..16 {
        // If they were prepared on this connection before, this fails too.
        let _ = other.batch_execute(&names.concat()).await;
    }
    let served = place(true).serve_over(&pooled).await;
    let mut host = Survivor::new(asking("scripted/tools", "chat"));
    host.survive(&[&served]).await;
    host.check_story(&served).await;
    assert!(!served.log_text().contains("already exists"), "{}", served.log_text());
}

/// Row F37: the pooler is restarted.
#[tokio::test(flavor = "multi_thread")]
async fn turns_continue_after_a_pooler_restart() {
    let database = TestDatabase::new().await;
    let pooler = Pooler::before(&database).await;
    let link = crate::harness::proxy::Link::to(pooler.target()).await;
    let place = place(true);
    let served = place.serve_over(&link.database(&database)).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    let again = Pooler::before(&database).await;
    link.lead_to(again.target());
    drop(pooler);
    link.cut();
    host.survive(&[&served]).await;
    host.check_story(&served).await;
}
