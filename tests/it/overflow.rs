//! A prompt that does not fit is not sent, or is made smaller once. A turn that fails reports what fills the window.

use contextd::{
    model::{Content, message::PRUNED_TEXT},
    pb::{self, ContextCategory, part},
};
use serde_json::{Value, json};

use crate::harness::{
    Host,
    events::{failed, kinds},
    host::{MODEL, answering},
    requests::{result, turn},
    transcripts::{calls, message, says},
    upstream::{Reply, Upstream, provider, said as answer},
};

/// A model that rejects its first `times` prompts as too long.
async fn too_long(times: u32) -> Host {
    let error = json!({"error": {"kind": "too_long", "message": "prompt is too long", "times": times}});
    Host::scripted(&[json!([error, {"text": "Fine."}])]).await
}

fn session(policy: pb::Policy) -> pb::Session {
    pb::Session {
        session_id: "s".to_owned(),
        model: MODEL.to_owned(),
        policy_overrides: Some(policy),
        ..pb::Session::default()
    }
}

/// Two old results of 2,000 tokens, which is less than pruning normally clears.
async fn with_results(host: &Host) {
    host.create(session(pb::Policy::default())).await;
    for call in ["c1", "c2"] {
        let words = "x".repeat(8_000);
        let part = pb::Part { content: Some(part::Content::ToolResult(result(call, &words))), ..Default::default() };
        let said = [says(pb::Role::User, "Look."), calls(&[call]), message(pb::Role::Tool, vec![part])];
        host.append("s", said.to_vec()).await;
    }
}

fn failure(events: &[pb::Event]) -> pb::Failure {
    failed(events).failure.clone().unwrap()
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_too_long_for_the_provider_is_shrunk_and_resent() {
    let host = too_long(1).await;
    with_results(&host).await;
    let events = host.run(turn("s", "", "Well?")).await;
    let all = kinds(&events);
    let at = all.iter().position(|kind| *kind == "turn_retrying").unwrap_or_else(|| panic!("{all:?}"));
    assert_eq!(all[at - 1..=at + 1], ["usage_recorded", "turn_retrying", "context_pruned"]);
    assert_eq!(all.last(), Some(&"turn_completed"));
    let prompts = host.replica.scripted.prompts();
    let cleared = |n: usize| {
        let parts = prompts[n].transcript.messages().iter().flat_map(|message| &message.parts);
        parts
            .filter(|part| matches!(&part.part.content, Content::ToolResult(it) if it.texts().eq([PRUNED_TEXT])))
            .count()
    };
    assert_eq!((prompts.len(), cleared(0), cleared(1)), (2, 0, 1), "the newest one stays");
}

/// Rows D20 and I7
#[tokio::test(flavor = "multi_thread")]
async fn overflow_recovery_runs_once_and_the_failure_has_the_breakdown() {
    let host = too_long(9).await;
    with_results(&host).await;
    let events = host.run(turn("s", "", "Well?")).await;
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "turn_retrying").count(), 1);
    assert_eq!(host.replica.scripted.prompts().len(), 2);
    let failure = failure(&events);
    assert_eq!((failure.reason(), failure.recoverable), (pb::FailureReason::ContextOverflow, false));
    assert_eq!(failure.categories[0].category(), ContextCategory::ToolResults);
    let sizes: Vec<i32> = failure.categories.iter().map(|share| share.tokens).collect();
    assert!(sizes.is_sorted_by(|one, other| one >= other), "{sizes:?}");
    let turn = host.turn("s", &events[0].turn_id).await;
    assert_eq!(turn.failure, Some(failure), "and it is kept");
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn an_overflow_with_nothing_to_prune_fails_at_once() {
    let host = too_long(9).await;
    let events = host.ask("s", "Hello").await;
    assert!(!kinds(&events).contains(&"turn_retrying"));
    assert_eq!(failure(&events).reason(), pb::FailureReason::ContextOverflow);
    assert_eq!(host.replica.scripted.prompts().len(), 1);
}

/// Rows S1 and I7
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_larger_than_the_window_is_not_sent() {
    let host = Host::scripted(&[json!([{"text": "Fine."}])]).await;
    let compaction = Some(pb::CompactionPolicy { enabled: Some(false), ..Default::default() });
    let small = pb::Policy { context_window: Some(1_000), compaction, ..pb::Policy::default() };
    host.create(session(small)).await;
    let fits = host.run(turn("s", "", &"x".repeat(4 * 900))).await;
    assert_eq!(kinds(&fits).last(), Some(&"turn_completed"));
    let events = host.run(turn("s", "", &"x".repeat(4 * 200))).await;
    let failure = failure(&events);
    assert_eq!(failure.reason(), pb::FailureReason::ContextOverflow);
    assert_eq!(failure.categories[0].category(), ContextCategory::User);
    let total: i32 = failure.categories.iter().map(|share| share.tokens).sum();
    assert_eq!(total, host.stats("s").await.used.unwrap().tokens);
    assert_eq!(host.replica.scripted.prompts().len(), 1, "the model was not asked");
}

/// A host of a service with this maximum request size in bytes. With `None`, the service reports its limit.
async fn narrow(upstream: &Upstream, max_request_bytes: Option<u64>) -> Host {
    let mut settings = upstream.settings();
    settings.http.max_request_bytes = max_request_bytes;
    let main = std::sync::Arc::new(provider("main", settings, "compatible"));
    let host = Host::with(answering(&[json!([{"text": "Fine."}])]).provider("main", main)).await;
    with_results(&host).await;
    host
}

/// The number of cleared results in a request.
fn cleared(request: &Value) -> usize {
    request["messages"].as_array().unwrap().iter().filter(|it| it["content"] == PRUNED_TEXT).count()
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn a_byte_limit_reported_by_the_service_is_met_by_a_smaller_prompt() {
    let page = "<html><head><title>413 Request Entity Too Large</title></head></html>";
    let refusals = [
        Reply::new(413, "text/html").then(page),
        Reply::error(413, "request_too_large", "Request exceeds the maximum size"),
        Reply::error(400, "invalid_request_error", "http: request body too large"),
    ];
    for refusal in refusals {
        let upstream = Upstream::start().await;
        let host = narrow(&upstream, None).await;
        upstream.answer(refusal);
        upstream.answer(Reply::events(answer(&["Fine."])));
        let events = host.run(turn("s", "main/gpt-4o", "Well?")).await;
        assert_eq!(kinds(&events).last(), Some(&"turn_completed"));
        let requests = upstream.requests();
        assert_eq!(requests.iter().map(|it| cleared(&it.json)).collect::<Vec<_>>(), [0, 1]);
    }
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn a_request_over_a_known_limit_in_bytes_is_not_sent() {
    let upstream = Upstream::start().await;
    let host = narrow(&upstream, Some(12_000)).await;
    upstream.answer(Reply::events(answer(&["Fine."])));
    let events = host.run(turn("s", "main/gpt-4o", "Well?")).await;
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "turn_retrying").count(), 1);
    assert_eq!(kinds(&events).last(), Some(&"turn_completed"));
    let requests = upstream.requests();
    assert_eq!(requests.iter().map(|it| cleared(&it.json)).collect::<Vec<_>>(), [1], "the first one was never sent");
    assert!(requests[0].body.len() <= 12_000);
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_stays_over_the_byte_limit_fails_with_the_breakdown() {
    let upstream = Upstream::start().await;
    let host = narrow(&upstream, Some(1_500)).await;
    let events = host.run(turn("s", "main/gpt-4o", "Well?")).await;
    let failure = failure(&events);
    assert_eq!((failure.reason(), failure.recoverable), (pb::FailureReason::ContextOverflow, false));
    assert_eq!(failure.categories[0].category(), ContextCategory::ToolResults);
    assert!(failure.message.contains("the service accepts at most 1500"), "{}", failure.message);
    assert!(upstream.requests().is_empty());
}
