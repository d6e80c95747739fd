//! Deadlines of callers, as enforced by the server. Generated stubs would time out at the same moment on the client, so
//! the requests here are plain HTTP/2.

use contextd::pb::{self, event::Payload};
use prost::bytes::Bytes;
use tonic::{Code, Status};

use crate::harness::{
    Options, Replica,
    errors::refusal,
    events::TEST_TIMEOUT,
    host::until,
    requests::{result, submit},
    survivor::{asking, two_tools, waiting_calls},
};

const EXECUTE_TURN: &str = "contextd.v1.TurnService/ExecuteTurn";

/// Calls an RPC with the given `grpc-timeout`.
async fn call(replica: &Replica, rpc: &str, message: &impl prost::Message, timeout: &str) -> reqwest::Response {
    let encoded = message.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(encoded.len()).unwrap().to_be_bytes());
    body.extend(encoded);
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let request = client
        .post(format!("http://{}/{rpc}", replica.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(Bytes::from(body));
    tokio::time::timeout(TEST_TIMEOUT, request.send()).await.expect("no answer").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unary_call_past_its_deadline_gets_deadline_exceeded_with_its_reason() {
    let (database, replica) = Replica::alone(Options::default()).await;
    let lock = database.client().await;
    lock.batch_execute("begin; lock table sessions, session_run in access exclusive mode").await.unwrap();
    let request = pb::GetSessionRequest { session_id: "chat".to_owned() };
    let response = call(&replica, "contextd.v1.SessionService/GetSession", &request, "300m").await;
    let status = Status::from_header_map(response.headers()).expect("no status");
    assert_eq!((status.code(), refusal(&status).reason.as_str()), (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_caller_left_before_its_admission_is_not_begun() {
    let (database, replica) = Replica::alone(Options::default().script("tools", two_tools().to_string())).await;
    let lock = database.client().await;
    lock.batch_execute("begin; lock table sessions, session_run in access exclusive mode").await.unwrap();
    let asks = |session| asking("scripted/tools", session);
    let response = call(&replica, EXECUTE_TURN, &asks("left"), "300m").await;
    let status = Status::from_header_map(response.headers()).expect("no status");
    assert_eq!(refusal(&status).reason, "DEADLINE_EXCEEDED");
    lock.batch_execute("rollback").await.unwrap();
    // This request was the first to wait for the tables.
    call(&replica, EXECUTE_TURN, &asks("stays"), "20S").await;
    let sql = "select session_id from turns";
    until("a turn to begin", || async { !lock.query(sql, &[]).await.unwrap().is_empty() }).await;
    let turns = lock.query(sql, &[]).await.unwrap();
    let begun: Vec<&str> = turns.iter().map(|row| row.get(0)).collect();
    assert_eq!(begun, ["stays"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_the_stream_and_not_the_turn() {
    // It waits for the results of tools until they are submitted.
    let (_database, replica) = Replica::alone(Options::default().script("tools", two_tools().to_string())).await;
    let response = call(&replica, EXECUTE_TURN, &asking("scripted/tools", "chat"), "400m").await;
    assert!(Status::from_header_map(response.headers()).is_none(), "the stream never began");
    let body = tokio::time::timeout(TEST_TIMEOUT, response.bytes()).await.expect("the stream goes on").unwrap();
    assert!(!body.is_empty());

    let list = pb::ListEventsRequest { session_id: "chat".to_owned(), page_size: 1000, ..Default::default() };
    let told = replica.turns().await.list_events(list.clone()).await.unwrap().into_inner().events;
    let calls: Vec<String> = told.iter().flat_map(waiting_calls).collect();
    assert_eq!(calls.len(), 2, "{told:?}");
    let results = calls.iter().map(|call| result(call, "fine")).collect();
    replica.turns().await.submit_tool_results(submit("chat", results)).await.unwrap();
    until("the turn's end", || async {
        let events = replica.turns().await.list_events(list.clone()).await.unwrap().into_inner().events;
        matches!(events.last().unwrap().payload, Some(Payload::TurnCompleted(_)))
    })
    .await;
}
