//! Clocks that are wrong, and connections to the database and to model services that are slow, half-closed or lost.

use std::{sync::Arc, time::Duration};

use contextd::{
    clock::{Clock, SystemClock},
    pb::{self, event::Payload},
};
use jiff::{SignedDuration, Timestamp};

use crate::harness::{
    Host, Options, TestDatabase,
    events::{completed, kinds, message_text, messages, until_written},
    process::Place,
    proxy::{Link, Target, Traffic, Way},
    requests::turn,
    survivor::{LONG_LEASE, Survivor, asking, pair, recoveries, slow},
    upstream::{Reply, Upstream, provider, said as spoken},
};

use super::{PATIENT, check_slow, commits::behind};

/// A clock with this offset.
#[derive(Debug)]
struct Wrong(SignedDuration);

impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        SystemClock.now() + self.0
    }
}

/// Row F18: the clock of a replica.
#[tokio::test(flavor = "multi_thread")]
async fn leases_work_with_replica_clocks_ten_minutes_off() {
    let waits = r#"{"steps": [{"say": [{"text": "one "}, {"wait_for": "ever"}]}]}"#.to_owned();
    let options = |minutes: i64, lost: &str| {
        let clock = Arc::new(Wrong(SignedDuration::from_mins(minutes)));
        let options = Options { lease: Duration::from_secs(3), clock, ..Options::default() };
        options.script("it", slow().to_string()).script("lost", lost)
    };
    let ahead = Host::with(options(10, &waits)).await;
    let behind = ahead.beside(options(-10, &slow().to_string())).await;
    let seen = ahead.run(turn("kept", "scripted/it", "Go")).await;
    completed(&seen);
    assert!(!kinds(&seen).contains(&"turn_recovered"), "a lease of its own was lost");
    let mut stream = ahead.execute(turn("lost", "scripted/lost", "Go")).await;
    let head = until_written(&mut stream, "one ").await;
    ahead.replica.stop_workers();
    let turn_id = crate::harness::events::turn_id(&head);
    let seen = crate::harness::events::all(&mut behind.watch("lost", &turn_id, 0).await).await;
    completed(&seen);
    assert_eq!(kinds(&seen).iter().filter(|kind| **kind == "turn_recovered").count(), 1);
}

/// Row F18: the clock of the database, as far as leases are concerned. A clock that jumps ahead makes every lease
/// expire.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_clock_that_jumps_ahead_causes_an_early_takeover_and_no_harm() {
    let database = TestDatabase::new().await;
    let place = Place::new(LONG_LEASE).script("slow", &slow());
    let (first, second) = pair(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&first).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    let jump = "with r as (update replicas set lease_until = now() - interval '10 minutes')
                update session_run set version = version + 1, lease_until = now() - interval '10 minutes' where state = 1";
    assert_eq!(database.client().await.execute(jump, &[]).await.unwrap(), 1);
    host.survive(&[&second]).await;
    check_slow(&host, &second).await;
    assert_eq!(recoveries(&host.seen), [(pb::RecoveryCause::LeaseExpired, 2)]);
    assert!(!first.log_text().contains("panicked"));
}

/// Row F9: a connection that is slow or half-closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_or_half_closed_database_link_costs_only_time() {
    let database = TestDatabase::new().await;
    let place = Place::new(PATIENT).script("slow", &slow());
    let (link, served) = behind(&place, &database).await;
    let cases = [
        (Way::Back, Traffic::Late(Duration::from_millis(100))),
        (Way::Back, Traffic::Closed),
        (Way::There, Traffic::Closed),
    ];
    for (n, (way, traffic)) in cases.into_iter().enumerate() {
        let mut host = Survivor::new(asking("scripted/slow", &format!("chat-{n}")));
        host.send_to(&served).await.unwrap();
        host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
        link.traffic(way, traffic);
        tokio::time::sleep(Duration::from_millis(300)).await; // the duration of the half-closed connection
        link.all_traffic(Traffic::Flows);
        host.survive(&[&served]).await;
        check_slow(&host, &served).await;
    }
}

/// Row F20
#[tokio::test(flavor = "multi_thread")]
async fn a_model_call_with_a_lost_connection_is_retried() {
    let upstream = Upstream::start().await;
    let link = Link::to(Target::Tcp(upstream.address)).await;
    let mut settings = upstream.settings();
    settings.base_url = format!("http://{}/v1", link.address);
    settings.http.stall_timeout = Duration::from_secs(1);
    let options = Options { call_attempts: 3, ..Options::default() };
    let host = Host::with(options.provider("main", Arc::new(provider("main", settings, "openai")))).await;
    for (session, break_it) in [("cut", Link::cut as fn(&Link)), ("dead", Link::strand as fn(&Link))] {
        upstream
            .answer(Reply::events(crate::harness::upstream::event(&serde_json::json!({"content": "Half"}))).stall());
        upstream.answer(Reply::events(spoken(&["Whole."])));
        let mut stream = host.execute(turn(session, "main/gpt-4o", "Go")).await;
        let mut seen = until_written(&mut stream, "Half").await;
        break_it(&link);
        seen.extend(crate::harness::events::all(&mut stream).await);
        completed(&seen);
        assert_eq!(kinds(&seen).iter().filter(|kind| **kind == "turn_retrying").count(), 1, "{session}");
        assert_eq!(message_text(messages(&seen)[1]), "Whole.", "{session}");
    }
}
