//! Commits with an unknown outcome: the connection breaks immediately before or after them.

use contextd::pb::{self, Delivery, event::Payload, queue_service_client::QueueServiceClient};
use serde_json::json;

use crate::harness::{
    TestDatabase,
    errors::refusal,
    events::{TEST_TIMEOUT, kinds},
    host::{MODEL, call, until},
    mcp_server::{McpServer, TOKEN},
    process::{Place, Served},
    proxy::{CutPoint, Link},
    requests::{approve, enqueue, turn},
    survivor::{Survivor, asking, events, is_end, recoveries, slow, two_tools},
};

use super::{PATIENT, all, check_slow, last_words};

/// A contextd whose database connections go through a link.
pub(super) async fn behind(place: &Place, database: &TestDatabase) -> (Link, Served) {
    let link = Link::to_database(database).await;
    let served = place.serve_over(&link.database(database)).await;
    (link, served)
}

/// Row F7
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_response_is_lost_is_recognized_as_committed() {
    lost_around_the_last_commit(CutPoint::After).await;
}

/// Row F8
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_never_reached_the_database_is_repeated_once() {
    lost_around_the_last_commit(CutPoint::Before).await;
}

/// The end of a turn is one statement that the link can recognize.
async fn lost_around_the_last_commit(landed: CutPoint) {
    let database = TestDatabase::new().await;
    let place = Place::new(PATIENT).script("slow", &slow());
    let (link, served) = behind(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    link.cut_at_commit(landed);
    while host.next().await.unwrap().is_some() {}
    link.was_cut(1).await;
    check_slow(&host, &served).await;
    assert_eq!(recoveries(&host.seen), [], "its owner went on by itself");
}

/// Rows F2, F7, F8: for every round trip of a turn, the owner loses its connection before and after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lost_at_any_round_trip_loses_and_duplicates_nothing() {
    const ROUND_TRIPS: usize = 12;
    let database = TestDatabase::new().await;
    let place = Place::new(PATIENT).script("tools", &two_tools());
    for landed in [CutPoint::After, CutPoint::Before] {
        let (link, served) = behind(&place, &database).await;
        // Statements are prepared on every connection before they are counted.
        let mut first = Survivor::new(asking("scripted/tools", &format!("first-{landed:?}")));
        first.survive(&[&served]).await;
        for round_trip in 0..ROUND_TRIPS {
            let mut host = Survivor::new(asking("scripted/tools", &format!("chat-{landed:?}-{round_trip}")));
            link.cut_at_statement(round_trip, landed);
            host.survive(&[&served]).await;
            link.spare(); // a turn may have fewer round trips
            host.check_story(&served).await;
            assert_eq!(last_words(&host), "fine fine", "{landed:?} {round_trip}");
        }
        assert!(link.times_cut() >= ROUND_TRIPS / 2, "hardly ever cut: {}", link.times_cut());
    }
}

/// Row F7: the statement that granted the turn was committed, but its replica got no response. The replica checks which
/// turns it owns.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_grant_response_was_lost_starts_soon() {
    let database = TestDatabase::new().await;
    let place = Place::new(PATIENT).script("tools", &two_tools());
    let (link, served) = behind(&place, &database).await;
    for (session, delivery) in [("start", Delivery::Asap), ("interrupt", Delivery::Interrupt)] {
        let mut host = Survivor::new(asking("scripted/tools", session));
        if delivery == Delivery::Asap {
            host.survive(&[&served]).await;
        } else {
            // While it waits for tools, it has no owner. The replica that interrupts it becomes its owner.
            host.send_to(&served).await.unwrap();
            host.until(|payload| matches!(payload, Payload::ActionRequired(_))).await;
        }
        // A reset connection may end the transaction before its commit, so this one only stalls.
        link.strand_at_commit(CutPoint::After);
        let request = pb::EnqueueMessageRequest {
            delivery: delivery.into(),
            on_idle: pb::IdleAction::StartTurn.into(),
            ..enqueue(session, "Go on")
        };
        let mut queue = QueueServiceClient::new(served.channel().await);
        let lost = queue.enqueue_message(request).await.unwrap_err();
        assert_eq!(refusal(&lost).reason, "DATABASE_UNAVAILABLE");
        link.was_cut(1).await;
        let ends = 1 + usize::from(delivery == Delivery::Asap);
        let begun = std::time::Instant::now();
        loop {
            let all = events(&served, session).await;
            if all.iter().filter(|event| is_end(event)).count() >= ends {
                break;
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "{session}: {:?}, {}", kinds(&all), served.log_text());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await; // no notification is sent
        }
        let all = events(&served, session).await;
        assert_eq!(recoveries(&all), [], "it was granted once");
    }
}

/// Row F7: the statement that requested a call of an MCP server was committed, but its replica got no response. No
/// other replica may start the call.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_an_mcp_server_begins_although_the_answer_that_requested_it_was_lost() {
    let server = McpServer::start().await;
    let settings = format!("{PATIENT}\n[mcp.played]\nurl = \"{}\"\ntoken = \"{TOKEN}\"\n", server.url());
    let steps = json!({"steps": [
        {"when": {"call": 0}, "say": [call("echo")]},
        {"say": [{"text": "{{result:echo}}"}]},
    ]});
    let database = TestDatabase::new().await;
    let place = Place::new(&settings).script("it", &steps);
    let (link, served) = behind(&place, &database).await;
    let played =
        pb::McpServerTools { server: "played".to_owned(), requires_approval: true, ..pb::McpServerTools::default() };
    let tools = pb::ToolSet { mcp_servers: vec![played], ..pb::ToolSet::default() };
    let mut host = Survivor::new(pb::ExecuteTurnRequest { tools: Some(tools), ..turn("chat", MODEL, "Hello") });
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::ActionRequired(_))).await;
    let asked = host.seen.iter().find_map(|event| match &event.payload {
        Some(Payload::ApprovalRequested(pending)) => pending.call.clone(),
        _ => None,
    });
    let request = pb::SubmitToolResultsRequest {
        session_id: "chat".to_owned(),
        approvals: vec![approve(&asked.unwrap().call_id)],
        ..pb::SubmitToolResultsRequest::default()
    };
    link.strand_at_commit(CutPoint::After);
    let lost = served.turns().await.submit_tool_results(request).await;
    assert_eq!(refusal(&lost.unwrap_err()).reason, "DATABASE_UNAVAILABLE");
    link.was_cut(1).await;
    until("the turn to end", || async { events(&served, "chat").await.iter().any(is_end) }).await;
    assert_eq!(server.begun(), ["echo"]);
}

/// Row F6: requests on a broken connection fail immediately, and a turn that started without a response continues.
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
            tokio::time::sleep(std::time::Duration::from_millis(100)).await; // the interval of the faults
            link.cut();
        }
    };
    tokio::join!(cutting, all(hosts.iter_mut().map(async |host| host.survive(&[&served]).await)));
    for host in &hosts {
        host.check_story(&served).await;
    }
    assert!(!served.log_text().contains("panicked"), "{}", served.log_text());
}

/// Rows F2 and F6: a response survives the loss of the connection on which it was to be committed, without an error in
/// the server log.
#[tokio::test(flavor = "multi_thread")]
async fn a_streaming_answer_survives_a_database_disconnect_without_an_error() {
    let database = TestDatabase::new().await;
    let place = Place::new(PATIENT).script("slow", &slow());
    let (link, served) = behind(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    link.close();
    until("the turn to need the database", || async {
        ["retrying a database access of a turn", "turn stopped on this replica"]
            .iter()
            .any(|words| served.log_text().contains(words))
    })
    .await;
    link.open();
    host.survive(&[&served]).await;
    check_slow(&host, &served).await;
    assert_eq!(recoveries(&host.seen), [], "its owner went on, and its model was not asked again");
    assert!(!served.log_text().contains("ERROR"), "{}", served.log_text());
}
