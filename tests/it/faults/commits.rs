//! Commits whose outcome nobody knows: the connection breaks right before or right behind them.

use contextd::pb::event::Payload;

use crate::harness::{
    TestDatabase,
    process::{Place, Served},
    proxy::{COMMIT, Landed, Link},
    survivor::{Survivor, asking, recoveries, slow, two_tools},
};

use super::{PATIENT, all, check_slow, last_words};

/// A contextd whose database is behind a link.
pub(super) async fn behind(place: &Place, database: &TestDatabase) -> (Link, Served) {
    let link = Link::to_database(database).await;
    let served = place.serve_over(&link.database(database)).await;
    (link, served)
}

/// Row F7
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_found_to_have_landed() {
    lost_around_the_last_commit(Landed::Yes).await;
}

/// Row F8
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_never_arrived_is_made_once() {
    lost_around_the_last_commit(Landed::No).await;
}

/// The end of a turn is one transaction with a COMMIT that can be seen on the wire.
async fn lost_around_the_last_commit(landed: Landed) {
    let (database, place) = (TestDatabase::new().await, Place::new(PATIENT).script("slow", &slow()));
    let (link, served) = behind(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    link.cut_at(COMMIT, landed);
    while host.next().await.unwrap().is_some() {}
    link.was_cut(1).await;
    check_slow(&host, &served).await;
    assert_eq!(recoveries(&host.seen), [], "its owner went on by itself");
}

/// Rows F2, F7, F8: every round trip of a turn is one at which its owner loses its connection, before and behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_at_any_round_trip_of_a_turn_loses_and_doubles_nothing() {
    // What the driver sends to run a prepared statement ends in these bytes: Execute without a limit, then Sync.
    const EXECUTED: &[u8] = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
    const ROUND_TRIPS: usize = 12;
    let (database, place) = (TestDatabase::new().await, Place::new(PATIENT).script("tools", &two_tools()));
    for landed in [Landed::Yes, Landed::No] {
        let (link, served) = behind(&place, &database).await;
        // Statements are prepared on every connection before they are counted.
        let mut first = Survivor::new(asking("scripted/tools", &format!("first-{landed:?}")));
        first.survive(&[&served]).await;
        for round_trip in 0..ROUND_TRIPS {
            let mut host = Survivor::new(asking("scripted/tools", &format!("chat-{landed:?}-{round_trip}")));
            link.cut_at_the(round_trip, EXECUTED, landed);
            host.survive(&[&served]).await;
            host.check_story(&served).await;
            assert_eq!(last_words(&host), "fine fine", "{landed:?} {round_trip}");
        }
        assert!(link.times_cut() >= ROUND_TRIPS / 2, "hardly ever cut: {}", link.times_cut());
    }
}

/// Row F6: requests that break are told so at once, and a turn that is begun without an answer goes on.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_again_and_again_lose_nothing() {
    let place = Place::new(PATIENT).script("tools", &two_tools()).script("slow", &slow());
    let database = TestDatabase::new().await;
    let (link, served) = behind(&place, &database).await;
    let mut hosts: Vec<Survivor> = (0..6)
        .map(|n| Survivor::new(asking(["scripted/tools", "scripted/slow"][n % 2], &format!("chat-{n}"))))
        .collect();
    let cutting = async {
        for _ in 0..15 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await; // the faults' own rhythm
            link.cut();
        }
    };
    tokio::join!(cutting, all(hosts.iter_mut().map(async |host| host.survive(&[&served]).await)));
    for host in &hosts {
        host.check_story(&served).await;
    }
    assert!(!served.said().contains("panicked"), "{}", served.said());
}
