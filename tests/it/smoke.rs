//! The main job, end to end.

use crate::harness::{
    Options, Replica,
    events::{TWO_TOOLS, all, kind, kinds, requested, until},
    requests::{result, submit, tools, turn},
};
use contextd::pb::event::Payload;

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_two_parallel_tools_ends_with_an_answer() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let mut turns = replica.turns().await;
    let mut request = turn(
        "chat-1",
        "scripted/demo",
        "What is the weather and time in Paris?",
    );
    request.tools = tools(&["get_weather", "get_time"]);
    let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
    let first = until(&mut stream, |payload| {
        matches!(payload, Payload::ActionRequired(_))
    })
    .await;
    let calls = requested(&first);
    let results = calls.iter().map(|call| result(call, "fine")).collect();
    turns
        .submit_tool_results(submit("chat-1", results))
        .await
        .unwrap();
    let rest = all(&mut stream).await;
    assert_eq!([kinds(&first), kinds(&rest)].concat(), TWO_TOOLS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_misses_nothing_of_the_turn_it_starts() {
    let hasty = r#"{"steps": [{"say": [{"text": "one "}, {"text": "two "}, {"delay_ms": 5}, {"text": "three"}]}]}"#;
    let (_database, replica) = Replica::alone(Options::default().script("hasty", hasty)).await;
    let turns = replica.turns().await;
    let run = async |number: u32| {
        let request = turn(&format!("chat-{number}"), "scripted/hasty", "Go");
        let events = all(&mut turns
            .clone()
            .execute_turn(request)
            .await
            .unwrap()
            .into_inner())
        .await;
        let shown: Vec<&str> = events
            .iter()
            .filter(|event| event.seq == 0)
            .map(kind)
            .collect();
        assert_eq!(shown[..2], ["admitted", "thinking"], "{shown:?}");
        let texts = events.iter().filter_map(|event| match &event.payload {
            Some(Payload::TextDelta(delta)) => Some(delta.text.as_str()),
            _ => None,
        });
        assert_eq!(texts.collect::<String>(), "one two three");
    };
    futures_util::future::join_all((0..100).map(run)).await;
}
