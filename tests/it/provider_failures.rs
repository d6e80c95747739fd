//! A model service that refuses, fails or stalls: the outcome of the turn, and that no secret is exposed.

use std::{sync::Arc, time::Duration};

use contextd::pb::{self, FailurePhase, FailureReason, SessionState};
use serde_json::json;
use tokio::net::TcpListener;

use crate::harness::{
    Host, Options,
    events::{completed, failed, kinds, outline},
    requests::turn,
    upstream::{KEY, Reply, Upstream, event, finished, provider, recorded, said},
};

const MODEL: &str = "main/gpt-4o";

/// Returns the failure of a turn with this response of the service. Fails unless the session remains usable.
async fn failure(reply: Reply) -> pb::Failure {
    let upstream = Upstream::start().await;
    upstream.answer(reply);
    let host = Host::with(upstream.options("openrouter")).await;
    let seen = host.run(turn("s", MODEL, "Hello")).await;
    let failure = failed(&seen).failure.clone().unwrap_or_else(|| panic!("{:?}", kinds(&seen)));
    assert_eq!(failure.provider, "main");
    assert!(!format!("{seen:?}").contains(KEY), "the key is told");
    assert_eq!(host.session("s").await.state(), SessionState::Idle);
    upstream.answer(Reply::events(said(&["All is well."])));
    completed(&host.run(turn("s", MODEL, "And now?")).await);
    let transcript = outline(&host.messages("s").await);
    assert_eq!(transcript, ["USER: \"Hello\"", "USER: \"And now?\"", "ASSISTANT: \"All is well.\""]);
    failure
}

/// Rows D20 and F21
#[tokio::test(flavor = "multi_thread")]
async fn every_provider_error_fails_the_turn_with_its_reason_and_message() {
    let error = |status: u16, code: &str| Reply::error(status, code, "It says no.").header("x-request-id", "req_7");
    let table = [
        (error(401, "invalid_api_key"), FailureReason::ProviderAuth, false),
        (error(403, "forbidden"), FailureReason::ProviderAuth, false),
        (error(400, "invalid_value"), FailureReason::ProviderBadRequest, false),
        (error(404, "model_not_found"), FailureReason::ProviderBadRequest, false),
        (error(400, "context_length_exceeded"), FailureReason::ContextOverflow, false),
        (error(413, "request_too_large"), FailureReason::ContextOverflow, false),
        (error(429, "rate_limit_exceeded"), FailureReason::ProviderRateLimited, true),
        (error(429, "insufficient_quota"), FailureReason::ProviderRateLimited, false),
        (
            error(429, "rate_limit_exceeded").header("x-should-retry", "false"),
            FailureReason::ProviderRateLimited,
            false,
        ),
        (error(408, "timeout"), FailureReason::ProviderTimeout, true),
        (error(504, "gateway"), FailureReason::ProviderTimeout, true),
        (error(500, "server_error"), FailureReason::ProviderOverloaded, true),
        (error(503, "slow_down"), FailureReason::ProviderOverloaded, true),
        (error(529, "overloaded_error"), FailureReason::ProviderOverloaded, true),
    ];
    for (reply, reason, recoverable) in table {
        let shown = format!("{reply:?}");
        let failure = failure(reply).await;
        assert_eq!((failure.reason(), failure.recoverable), (reason, recoverable), "{shown}");
        assert_eq!(failure.phase(), FailurePhase::Generate, "{shown}");
        assert_eq!(
            (failure.message.as_str(), failure.provider_request_id.as_str()),
            ("It says no.", "req_7"),
            "{shown}"
        );
        assert!(shown.contains(&format!("status: {}", failure.provider_status)), "{shown}");
        assert!(shown.contains(&failure.provider_code) && !failure.provider_code.is_empty(), "{shown}");
        assert_eq!(failure.retry_after, None, "{shown}");
    }
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn a_requested_retry_delay_is_reported() {
    for (name, value, seconds, nanos) in [("retry-after", "7", 7, 0), ("retry-after-ms", "1500", 1, 500_000_000)] {
        let failure = failure(Reply::error(429, "rate_limit_exceeded", "Wait.").header(name, value)).await;
        let after = failure.retry_after.unwrap();
        assert_eq!((after.seconds, after.nanos), (seconds, nanos), "{name}");
    }
}

/// Rows D20 and F21
#[tokio::test(flavor = "multi_thread")]
async fn an_undecodable_answer_fails_the_turn_with_its_reason() {
    let begun = || Reply::events(event(&json!({"content": "So far"})));
    let html = "<html><head><title>Sign in</title></head></html>";
    let in_stream = r#"data: {"error":{"message":"It broke.","code":502},"choices":[]}"#;
    let table = [
        (
            Reply::new(200, "text/html").then(html),
            "the content type of its response is text/html, not that of an event stream: an HTML page titled Sign in",
            FailureReason::ProviderBroken,
            FailurePhase::Generate,
        ),
        (
            Reply::json(200, &json!({"error": {"message": "No room.", "code": 429}})),
            "No room.",
            FailureReason::ProviderRateLimited,
            FailurePhase::Generate,
        ),
        (
            Reply::json(200, &json!({"choices": []})),
            "the content type of its response is application/json, not that of an event stream",
            FailureReason::ProviderBroken,
            FailurePhase::Generate,
        ),
        (
            Reply::new(302, "text/html").header("location", "http://127.0.0.1:1/"),
            "it returned 302, a redirect, which is not followed",
            FailureReason::ProviderBroken,
            FailurePhase::Generate,
        ),
        (
            Reply::events(""),
            "the response ended without its end marker",
            FailureReason::ProviderBroken,
            FailurePhase::Generate,
        ),
        (begun(), "the response ended without its end marker", FailureReason::ProviderBroken, FailurePhase::Stream),
        (
            begun().then("data: {\"choices\": [\n\n"),
            "an event of the stream cannot be read: it is cut off, at byte 13",
            FailureReason::ProviderBroken,
            FailurePhase::Stream,
        ),
        (
            begun().then(format!("{in_stream}\n\n")),
            "It broke.",
            FailureReason::ProviderOverloaded,
            FailurePhase::Stream,
        ),
        (
            begun().then("event: error\ndata: {\"error\":{\"message\":\"Context size has been exceeded.\"}}\n\n"),
            "Context size has been exceeded.",
            FailureReason::ContextOverflow,
            FailurePhase::Stream,
        ),
        (
            Reply::events(recorded("groq/pydantic__test_groq__test_tool_use_failed_error_streaming_with_text.sse")),
            "Tool choice is required, but model did not call a tool",
            FailureReason::ProviderBroken,
            FailurePhase::Stream,
        ),
    ];
    for (reply, message, reason, phase) in table {
        let failure = failure(reply).await;
        assert_eq!((failure.message.as_str(), failure.reason(), failure.phase()), (message, reason, phase));
    }
}

/// Rows D20 and F20
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_does_not_complete_an_answer() {
    let whole = [event(&json!({"content": "So far"})), finished("stop")].concat();
    let marker = whole.len() - b"data: [DONE]\n\n".len();
    for cut in [10, marker] {
        let failure = failure(Reply::events(whole[..cut].to_vec()).cut()).await;
        assert_eq!(failure.reason(), FailureReason::ProviderBroken, "{cut}");
        assert!(failure.message.starts_with("the connection broke: "), "{}", failure.message);
    }
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_service_fails_the_turn_without_blocking() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let upstream = Upstream::start().await;
    let mut settings = upstream.settings();
    settings.base_url = format!("http://127.0.0.1:{port}/v1");
    let host = Host::with(Options::default().provider("main", Arc::new(provider("main", settings, "openai")))).await;
    let seen = host.run(turn("s", MODEL, "Hello")).await;
    let failure = failed(&seen).failure.as_ref().unwrap();
    assert_eq!((failure.reason(), failure.provider_status), (FailureReason::ProviderBroken, 0));
    assert!(failure.message.starts_with("cannot be reached: "), "{}", failure.message);
    assert!(!failure.message.contains("127.0.0.1"), "the address is the operator's affair: {}", failure.message);
}

/// Rows D20, F19 and F20
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_answer_times_out() {
    let table = [
        (Reply::events("").after("never"), FailurePhase::Generate),
        (Reply::events("").stall(), FailurePhase::Generate),
        (Reply::events(event(&json!({"content": "So far"}))).stall(), FailurePhase::Stream),
    ];
    for (reply, phase) in table {
        let upstream = Upstream::start().await;
        upstream.answer(reply);
        let mut settings = upstream.settings();
        (settings.http.first_byte_timeout, settings.http.stall_timeout) =
            (Duration::from_millis(50), Duration::from_millis(50));
        let host =
            Host::with(Options::default().provider("main", Arc::new(provider("main", settings, "openai")))).await;
        let seen = host.run(turn("s", MODEL, "Hello")).await;
        let failure = failed(&seen).failure.as_ref().unwrap();
        assert_eq!((failure.reason(), failure.phase()), (FailureReason::ProviderTimeout, phase));
        assert_eq!(failure.message, "received no data for 0.05 seconds");
        upstream.left(1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_key_echoed_by_a_service_is_redacted() {
    for status in [401, 400] {
        let message = format!("Incorrect API key provided: {KEY}. You sent Bearer {KEY}.");
        let failure = failure(Reply::error(status, KEY, &message).header("x-request-id", KEY)).await;
        assert_eq!(failure.message, "Incorrect API key provided: ***. You sent Bearer ***.");
        assert_eq!((failure.provider_code.as_str(), failure.provider_request_id.as_str()), ("***", "***"));
    }
}
