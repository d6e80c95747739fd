//! The size of the next prompt is one number: every API that returns it and every decision based on it must use the
//! same value.

use contextd::{
    model::config::ContextPolicy,
    pb::{self, event::Payload, media::Source, part::Content},
};
use serde_json::{Value, json};

use crate::harness::{
    Host, Options,
    events::{all, until_action, until_written},
    host::{call, script},
    requests::{result, text, tools, turn},
    transcripts::message,
};

const SEES: &str = "scripted/sees";
const BLIND: &str = "scripted/blind";

/// A model that accepts images and documents, and a model that accepts only text and has these responses.
fn models(answers: &[Value]) -> Options {
    let takes = ["image/*", "application/pdf"];
    let look = json!({"when": {"user_contains": "look"}, "say": [call("look")]});
    let steps =
        json!([{"when": {"has_result_of": "look"}, "say": [{"text": "Seen."}]}, look, {"say": [{"text": "Seen."}]}]);
    let sees = json!({"input_media_types": takes, "steps": steps});
    let options = Options::default().script("sees", sees.to_string()).script("blind", script(answers));
    Options { context: ContextPolicy::default(), ..options }
}

fn media(media_type: &str, data: Vec<u8>) -> pb::Part {
    let media =
        pb::Media { media_type: media_type.to_owned(), source: Some(Source::Data(data)), ..pb::Media::default() };
    pb::Part { content: Some(Content::Media(media)), ..pb::Part::default() }
}

/// A document that counts as 12,000 tokens.
fn document() -> pb::Part {
    media("application/pdf", vec![b'x'; 600_000])
}

fn picture() -> pb::Part {
    media("image/gif", b"GIF89a\x40\x01\xf0\x00 a picture".to_vec())
}

/// The end of a response, with the reported usage, if any.
fn ends(reason: &str, reported: Option<(u32, u32)>) -> Value {
    let usage = reported.map(|(input, output)| json!({"input": input, "output": output}));
    json!({"finish": {"reason": reason, "usage": usage}})
}

/// A response that blocks in the middle until `go` is released.
fn waits() -> Value {
    json!([{"text": "Well, "}, {"wait_for": "go"}, {"text": "done."}, ends("stop", Some((600, 5)))])
}

/// A session that starts with [`SEES`], receives these parts, and switches to [`BLIND`].
async fn switched(host: &Host, session: &str, shown: Vec<pb::Part>) {
    let made = pb::Session {
        session_id: session.to_owned(),
        model: SEES.to_owned(),
        tools: tools(&["look"]),
        ..pb::Session::default()
    };
    host.create(made.clone()).await;
    host.run(asks(session, shown)).await;
    switch(host, pb::Session { model: BLIND.to_owned(), ..made }).await;
}

async fn switch(host: &Host, session: pb::Session) {
    let request = pb::UpdateSessionRequest { session: Some(session), ..pb::UpdateSessionRequest::default() };
    host.sessions().update_session(request).await.unwrap();
}

fn asks(session: &str, parts: Vec<pb::Part>) -> pb::ExecuteTurnRequest {
    let input = Some(pb::InputMessage { parts, ..pb::InputMessage::default() });
    pb::ExecuteTurnRequest { input, ..turn(session, "", "") }
}

/// The size in each `step_started` event.
fn started(events: &[pb::Event]) -> Vec<pb::TokenCount> {
    let size = |event: &pb::Event| match &event.payload {
        Some(Payload::StepStarted(step)) => step.context_tokens.clone(),
        _ => None,
    };
    events.iter().filter_map(size).collect()
}

/// The size on which the decisions before each call were based.
fn decided(events: &[pb::Event]) -> Vec<i32> {
    let size = |event: &pb::Event| match &event.payload {
        Some(Payload::UsageRecorded(recorded)) => recorded.estimate.map(|estimate| estimate.estimated_tokens),
        _ => None,
    };
    events.iter().filter_map(size).collect()
}

/// Rows A4 and I6
#[tokio::test(flavor = "multi_thread")]
async fn the_first_step_after_a_model_switch_begins_with_the_size_that_statistics_and_triggers_have() {
    let host = Host::with(models(&[waits()])).await;
    switched(&host, "s", vec![text("Read this."), document()]).await;
    let appended = host.append("s", vec![message(pb::Role::User, vec![text("And this."), picture()])]).await;
    let before = host.stats("s").await.used;
    assert_eq!(appended.context_tokens, before, "what an append answers");

    let mut stream = host.execute(turn("s", "", "Go on.")).await;
    let head = until_written(&mut stream, "Well, ").await;
    let shown = host.stats("s").await.used.unwrap();
    assert!((before.unwrap().tokens..200).contains(&shown.tokens), "{shown:?}");
    assert_eq!(started(&head), std::slice::from_ref(&shown));
    host.release("go");
    assert_eq!(decided(&all(&mut stream).await), [shown.tokens]);
}

/// Rows A4 and I6
#[tokio::test(flavor = "multi_thread")]
async fn statistics_during_a_turn_are_those_of_the_model_that_the_turn_calls() {
    let host = Host::with(models(&[waits()])).await;
    let made = pb::Session { session_id: "s".to_owned(), model: SEES.to_owned(), ..pb::Session::default() };
    host.create(made).await;
    host.run(asks("s", vec![text("Read this."), document()])).await;
    let mut stream = host.execute(turn("s", BLIND, "Go on.")).await;
    let head = until_written(&mut stream, "Well, ").await;
    let shown = host.stats("s").await;
    assert_eq!(shown.model, BLIND);
    let used = shown.used.unwrap();
    assert_eq!(started(&head), std::slice::from_ref(&used));
    host.release("go");
    assert_eq!(decided(&all(&mut stream).await), [used.tokens]);
    assert_eq!(host.stats("s").await.model, SEES, "after the turn");
}

/// Rows A4 and I6
#[tokio::test(flavor = "multi_thread")]
async fn the_step_after_tool_results_begins_with_the_size_that_statistics_and_triggers_have() {
    for reported in [None, Some((500, 20))] {
        let calls = json!([call("look"), call("look"), ends("tool_calls", reported)]);
        let host = Host::with(models(&[calls, waits()])).await;
        switched(&host, "s", vec![text("Read this."), document()]).await;
        let mut stream = host.execute(turn("s", "", "Go on.")).await;
        let (_, [open, _]) = until_action(&mut stream).await;
        let shows = |call: &str| pb::ToolResult { parts: vec![text("a cat"), picture()], ..result(call, "") };
        host.submit("s", vec![shows(&open[0])]).await;
        let waiting = host.stats("s").await.used.unwrap().tokens;
        host.submit("s", vec![shows(&open[1])]).await;
        let tail = until_written(&mut stream, "Well, ").await;
        let shown = host.stats("s").await.used.unwrap();
        assert!(shown.tokens < 700 && (waiting + 5..waiting + 40).contains(&shown.tokens), "{waiting} {shown:?}");
        assert_eq!(started(&tail), std::slice::from_ref(&shown), "{reported:?}");
        host.release("go");
        assert_eq!(decided(&all(&mut stream).await), [shown.tokens], "{reported:?}");
    }
}

/// Rows A4 and I6
#[tokio::test(flavor = "multi_thread")]
async fn pictures_in_tool_results_are_counted_as_the_words_that_another_model_reads() {
    let host = Host::with(models(&[waits()])).await;
    let made = pb::Session {
        session_id: "s".to_owned(),
        model: SEES.to_owned(),
        tools: tools(&["look"]),
        ..pb::Session::default()
    };
    host.create(made.clone()).await;
    let shows =
        |call: &pb::ToolCall| pb::ToolResult { parts: vec![text("a cat"), picture()], ..result(&call.call_id, "") };
    host.run_with(turn("s", "", "Please look."), shows).await;
    switch(&host, pb::Session { model: BLIND.to_owned(), ..made }).await;

    let mut stream = host.execute(turn("s", "", "Go on.")).await;
    let head = until_written(&mut stream, "Well, ").await;
    let shown = host.stats("s").await.used.unwrap();
    assert!(shown.tokens < 150, "{shown:?}");
    assert_eq!(started(&head), std::slice::from_ref(&shown));
    host.release("go");
    assert_eq!(decided(&all(&mut stream).await), [shown.tokens]);
}

/// Row L4
#[tokio::test(flavor = "multi_thread")]
async fn unsupported_media_take_no_room_from_results() {
    let calls = json!([call("look"), ends("tool_calls", None)]);
    let host = Host::with(models(&[calls, json!([{"text": "Seen."}])])).await;
    switched(&host, "s", vec![text("Read this."), document()]).await;
    let policy = pb::Policy { context_window: Some(20_000), output_reserve: Some(1_000), ..pb::Policy::default() };
    let narrow = pb::Session { session_id: "s".to_owned(), policy_overrides: Some(policy), ..pb::Session::default() };
    switch(&host, narrow).await;
    // 12,000 tokens. If the document counted, there would be room for at most 9,500.
    let words = "x".repeat(48_000);
    let events = host.run_with(turn("s", "", "Go on."), |call| result(&call.call_id, &words)).await;
    let given = crate::harness::events::results(&events);
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].truncation, None);
}
