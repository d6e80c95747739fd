//! The basic workflow, end to end.

use std::time::Duration;

use contextd::{
    config::StreamConfig,
    pb::{self, Event, event::Payload, turn_service_client::TurnServiceClient},
};
use tonic::transport::Endpoint;

use crate::harness::{
    Options, Replica,
    events::{TWO_TOOLS, all, kind, kinds, next, requested, until},
    host,
    requests::{result, submit, tools, turn},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_two_parallel_tools_ends_with_an_answer() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let mut turns = replica.turns().await;
    let mut request = turn("chat-1", "scripted/demo", "What is the weather and time in Paris?");
    request.tools = tools(&["get_weather", "get_time"]);
    let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
    let first = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let calls = requested(&first);
    let results = calls.iter().map(|call| result(call, "fine")).collect();
    turns.submit_tool_results(submit("chat-1", results)).await.unwrap();
    let rest = all(&mut stream).await;
    assert_eq!([kinds(&first), kinds(&rest)].concat(), TWO_TOOLS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_misses_nothing_of_the_turn_it_starts() {
    let hasty = r#"{"steps": [{"say": [{"text": "one "}, {"text": "two "}, {"delay_ms": 5}, {"text": "three"}]}]}"#;
    let (_database, replica) = Replica::alone(remembering().script("hasty", hasty)).await;
    let turns = replica.turns().await;
    let run = async |number: u32| {
        let request = turn(&format!("chat-{number}"), "scripted/hasty", "Go");
        let events = all(&mut turns.clone().execute_turn(request).await.unwrap().into_inner()).await;
        let shown: Vec<&str> = events.iter().filter(|event| event.seq == 0).map(kind).collect();
        assert_eq!(shown[..2], ["admitted", "thinking"], "{shown:?}");
        assert_eq!(texts(&events), "one two three");
    };
    futures_util::future::join_all((0..100).map(run)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_reads_late_is_shown_the_text_before_its_commit() {
    let hasty = r#"{"steps": [{"say": [{"text": "one "}, {"text": "two"}]}]}"#;
    let options = Options { stream: StreamConfig { reader_events: 1, reader_bytes: 64 * 1024 }, ..remembering() };
    let (_database, replica) = Replica::alone(options.script("hasty", hasty)).await;
    let turns = replica.turns().await;
    // The connection accepts only the first events until it is read.
    let narrow = Endpoint::from_shared(format!("http://{}", replica.address))
        .unwrap()
        .initial_stream_window_size(64)
        .connect()
        .await
        .unwrap();
    let request = turn("chat-1", "scripted/hasty", "Go");
    let mut stream = TurnServiceClient::new(narrow).execute_turn(request).await.unwrap().into_inner();
    let first = next(&mut stream).await.unwrap().unwrap();
    host::until("the turn to end", || async {
        let request = pb::GetTurnRequest { session_id: "chat-1".to_owned(), turn_id: first.turn_id.clone() };
        let turn = turns.clone().get_turn(request).await.unwrap().into_inner();
        turn.turn.unwrap().state() == pb::TurnState::Completed
    })
    .await;
    let rest = all(&mut stream).await;
    assert_eq!(texts(&rest), "one two");
    let kinds: Vec<&str> = rest.iter().map(kind).collect();
    let [.., text, commit, _, _] = kinds.as_slice() else {
        panic!("{kinds:?}");
    };
    assert_eq!([*text, *commit], ["text_delta", "message_committed"], "{kinds:?}");
}

/// A replica that buffers the deltas of a message for slow readers.
fn remembering() -> Options {
    Options { poll: Duration::from_secs(60), ..Options::default() }
}

fn texts(events: &[Event]) -> String {
    let text = |event: &Event| match &event.payload {
        Some(Payload::TextDelta(delta)) => Some(delta.text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}
