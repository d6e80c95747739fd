//! Model services that fail after the turn is admitted: the RPC succeeds, the turn fails, and the session remains
//! usable.

use crate::harness::{
    Host, Options,
    events::{all, completed, failed, kinds, outline, turn_id, turn_state, until},
    host::MODEL,
    requests::{result, tools, turn},
};
use contextd::pb::{self, CompletionReason, FailurePhase, FailureReason, SessionState, TurnState, event::Payload};
use serde_json::{Value, json};

/// A model that returns this if the input mentions a failure, and otherwise succeeds.
async fn failing(say: Value) -> Host {
    let script = json!({"steps": [
        {"when": {"user_contains": "fail"}, "say": say},
        {"say": [{"text": "All is well."}]},
    ]});
    Host::with(Options::default().script("it", script.to_string())).await
}

/// Runs a turn that fails, and one after it that succeeds.
async fn check(host: &Host, reason: FailureReason, phase: FailurePhase) -> pb::Failure {
    let mut stream = host.execute(turn("s", MODEL, "Please fail")).await;
    let seen = all(&mut stream).await;
    assert_eq!(turn_state(&mut stream).await, "FAILED");
    assert_eq!(
        kinds(&seen),
        ["turn_started", "message_committed", "step_started", "usage_recorded", "turn_failed"],
        "{reason:?}"
    );
    let end = failed(&seen);
    let failure = end.failure.clone().unwrap();
    assert_eq!((failure.reason(), failure.phase(), failure.provider.as_str()), (reason, phase, "scripted"));
    assert_eq!(end.result.as_ref().unwrap().total_usage.unwrap().calls, 1);

    assert_eq!(outline(&host.messages("s").await), ["USER: \"Please fail\""], "{reason:?}: the input is kept");
    let stored = host.turn("s", &turn_id(&seen)).await;
    assert_eq!((stored.state(), stored.failure.as_ref()), (TurnState::Failed, Some(&failure)));
    assert_eq!(host.session("s").await.state(), SessionState::Idle);
    let mut watch = host.watch("s", "", 0).await;
    let head = until(&mut watch, |payload| matches!(payload, Payload::Sync(_))).await;
    let Some(Payload::Sync(sync)) = &head.last().unwrap().payload else { unreachable!() };
    assert_eq!(sync.open_message, None, "{reason:?}: no message stays open");

    let next = host.ask("s", "Hello").await;
    assert_eq!(completed(&next).reason(), CompletionReason::Stop, "{reason:?}: the next turn runs");
    let transcript = host.messages("s").await;
    assert_eq!(outline(&transcript), ["USER: \"Please fail\"", "USER: \"Hello\"", "ASSISTANT: \"All is well.\""]);
    failure
}

const KINDS: [(&str, FailureReason, bool); 7] = [
    ("auth", FailureReason::ProviderAuth, false),
    ("rate_limited", FailureReason::ProviderRateLimited, true),
    ("timeout", FailureReason::ProviderTimeout, true),
    ("overloaded", FailureReason::ProviderOverloaded, true),
    ("bad_request", FailureReason::ProviderBadRequest, false),
    ("too_long", FailureReason::ContextOverflow, false),
    ("broken", FailureReason::ProviderBroken, true),
];

#[tokio::test(flavor = "multi_thread")]
async fn an_error_before_the_first_byte_fails_the_turn_with_its_reason() {
    for (kind, reason, recoverable) in KINDS {
        let error = json!({"error": {
            "kind": kind, "message": "It went wrong.", "status": 499, "code": "went_wrong", "retry_after_ms": 1500}});
        let host = failing(json!([error])).await;
        let failure = check(&host, reason, FailurePhase::Generate).await;
        assert_eq!((failure.recoverable, failure.message.as_str()), (recoverable, "It went wrong."), "{kind}");
        assert_eq!((failure.provider_status, failure.provider_code.as_str()), (499, "went_wrong"), "{kind}");
        let after = failure.retry_after.unwrap();
        assert_eq!((after.seconds, after.nanos), (1, 500_000_000), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mid_stream_error_fails_the_turn_with_its_reason() {
    for (kind, reason, recoverable) in KINDS {
        let host = failing(json!([{"text": "I was about to"}, {"error": {"kind": kind}}])).await;
        let failure = check(&host, reason, FailurePhase::Stream).await;
        assert_eq!(
            (failure.recoverable, failure.provider_status, failure.retry_after),
            (recoverable, 0, None),
            "{kind}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_end_marker_is_never_complete() {
    let table = [
        (json!([{"end_without_finish": true}]), FailurePhase::Generate),
        (json!([{"text": "I was about to"}, {"end_without_finish": true}]), FailurePhase::Stream),
        (json!([{"tool_call": {"name": "look", "arguments": {}}}, {"end_without_finish": true}]), FailurePhase::Stream),
    ];
    for (say, phase) in table {
        let host = failing(say).await;
        check(&host, FailureReason::ProviderBroken, phase).await;
    }
}

/// Row I11
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_over_the_size_limit_fails_the_turn() {
    let host = failing(json!([{"repeat": {"text": "words and ", "times": 80_000}, "chunk_chars": 100_000}])).await;
    let failure = check(&host, FailureReason::ProviderBroken, FailurePhase::Stream).await;
    assert_eq!(failure.message, "response too large: more than 786432 bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_step_keeps_the_previous_steps() {
    let script = json!({"steps": [
        {"when": {"call": 0, "user_contains": "fail"}, "say": [{"text": "Hm."}, {"tool_call": {"name": "look", "arguments": {}}}]},
        {"when": {"call": 1, "user_contains": "fail"}, "say": [{"text": "And"}, {"error": {"kind": "overloaded"}}]},
        {"say": [{"text": "All is well."}]},
    ]});
    let host = Host::with(Options::default().script("it", script.to_string())).await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Please fail") };
    let seen = host.run_with(request, |call| result(&call.call_id, "fine")).await;
    let failure = failed(&seen).failure.as_ref().unwrap();
    assert_eq!((failure.reason(), failure.phase()), (FailureReason::ProviderOverloaded, FailurePhase::Stream));
    let result = failed(&seen).result.as_ref().unwrap();
    assert_eq!((result.step_count, result.total_usage.unwrap().calls), (2, 2));
    assert_eq!(completed(&host.ask("s", "Hello").await).reason(), CompletionReason::Stop);
    assert_eq!(
        outline(&host.messages("s").await),
        [
            "USER: \"Please fail\"",
            "ASSISTANT: \"Hm.\", call look",
            "TOOL: result look \"fine\"",
            "USER: \"Hello\"",
            "ASSISTANT: \"All is well.\"",
        ]
    );
}
