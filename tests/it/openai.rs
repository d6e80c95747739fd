//! Turns with services that use Chat Completions: the turn of the README, the requests that are sent, and what is never
//! exposed.

use std::sync::Arc;

use contextd::{
    model::config::ContextPolicy,
    pb::{self, CompletionReason, FailureReason, FinishReason, event::Payload},
};
use serde_json::{Value, json};

use crate::harness::{
    Host,
    events::{
        TWO_TOOLS, all, completed, content, failed, kind, kinds, message_text, messages, outline, until_written,
        written,
    },
    requests::{result, tools, turn},
    upstream::{KEY, Reply, Upstream, declaring, event, finished, recorded, said as answer},
};

/// The model of [`Upstream::options`].
const MODEL: &str = "main/gpt-4o";

fn asks(names: &[&str]) -> pb::ExecuteTurnRequest {
    let system = pb::Session { system_prompt: "Be brief.".to_owned(), ..pb::Session::default() };
    pb::ExecuteTurnRequest { tools: tools(names), session: Some(system), ..turn("s", MODEL, "Look both up.") }
}

fn labels(call: &pb::ToolCall) -> pb::ToolResult {
    result(&call.call_id, &format!("{} is crimson", call.tool_name))
}

/// A service, its first and second response, the called tools, the final text, the characters of its reasoning, and the
/// tokens that it reported.
type Recording = (&'static str, &'static str, &'static str, [&'static str; 2], &'static str, usize, [i32; 2]);

const RECORDINGS: [Recording; 5] = [
    (
        "openai",
        "openai-chat/rig__chat_tool_lifecycle_matrix__streaming_gpt41_parallel_agent.sse",
        "openai-chat/rig__completions_api__completions_api_raw_followup_uses_tool_result_without_new_tool_calls.2.sse",
        ["alpha", "beta"],
        "The label for the harbor is \"crimson-harbor.\"",
        0,
        [132, 80],
    ),
    (
        "openrouter",
        "openrouter/rig__reasoning_tool_order_matrix__streaming_parallel.sse",
        "openrouter/rig__streaming_tools__raw_followup_uses_tool_result_without_new_tool_calls.2.sse",
        ["alpha", "beta"],
        "",
        379,
        [886, 78],
    ),
    (
        "deepseek",
        "deepseek/rig__agent_tool_sessions__parallel_tool_calls_single_turn_streaming.sse",
        "deepseek/rig__agent_tool_sessions__parallel_tool_calls_single_turn_streaming.2.sse",
        ["lookup_harbor_label", "lookup_orchard_label"],
        "The harbor label is \"crimson-harbor\" and the orchard label is \"silver-orchard\".",
        0,
        [452, 505],
    ),
    (
        "groq",
        "groq/rig__agent_tool_sessions__parallel_tool_calls_single_turn_streaming.sse",
        "groq/rig__prompt_caching__streaming_probe.sse",
        ["lookup_harbor_label", "lookup_orchard_label"],
        "",
        0,
        [394, 1811],
    ),
    (
        "llamacpp",
        "llamacpp/rig__permission_control__permission_control_streaming_example.sse",
        "llamacpp/rig__permission_control__permission_control_streaming_example.2.sse",
        ["read_file_head", "read_file_tail"],
        "The content of test.txt is:  \nhello world",
        0,
        [264, 392],
    ),
];

/// Rows D27 and S3: the turn of the README, with recorded responses of five services.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_two_parallel_tools_is_the_same_over_every_recorded_service() {
    for (dialect, first, second, names, last, thought, totals) in RECORDINGS {
        let upstream = Upstream::start().await;
        upstream.answer(Reply::new(200, "text/event-stream").pieces(&recorded(first), 7));
        upstream.answer(Reply::events(recorded(second)));
        let host = Host::with(upstream.options(dialect)).await;
        let seen = host.run_with(asks(&names), labels).await;
        // The finish reason may be that the response was limited. The events before it are the same.
        assert_eq!(kinds(&seen)[..14], TWO_TOOLS[..14], "{dialect}");
        assert!(matches!(completed(&seen).reason(), CompletionReason::Stop | CompletionReason::Length), "{dialect}");
        let stored = host.messages("s").await;
        let calls: Vec<&str> = stored[1]
            .parts
            .iter()
            .filter_map(|part| match &part.content {
                Some(pb::part::Content::ToolCall(call)) => Some(call.tool_name.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(calls, names, "{dialect}");
        let reasoning: usize = stored[1]
            .parts
            .iter()
            .filter_map(|part| match &part.content {
                Some(pb::part::Content::Reasoning(reasoning)) => Some(reasoning.text.chars().count()),
                _ => None,
            })
            .sum();
        assert_eq!(reasoning, thought, "{dialect}");
        if !last.is_empty() {
            assert_eq!(message_text(&stored[3]), last, "{dialect}");
        }
        for (message, total) in [(&stored[1], totals[0]), (&stored[3], totals[1])] {
            let response = message.response.as_ref().unwrap();
            assert_eq!((response.provider.as_str(), response.model.as_str()), ("main", MODEL));
            assert_eq!(response.usage.as_ref().unwrap().total_tokens, total, "{dialect}");
        }
        let shown: Vec<String> = written(&seen).into_values().collect();
        assert!(shown.iter().any(|text| *text == message_text(&stored[3])), "{dialect}: {shown:?}");
        // The second model call contains the first response and both results.
        let sent = upstream.requests()[1].json["messages"].clone();
        let roles: Vec<&str> =
            sent.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"], "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_what_the_service_documents() {
    let upstream = Upstream::start().await;
    let calls = json!([
        {"index": 0, "id": "call_a", "type": "function", "function": {"name": "look", "arguments": "{\"where\": \"up\"}"}},
        {"index": 1, "id": "call_b", "type": "function", "function": {"name": "list", "arguments": "{}"}},
    ]);
    let first =
        [event(&json!({"content": "One moment."})), event(&json!({"tool_calls": calls})), finished("tool_calls")];
    upstream.answer(Reply::events(first.concat()));
    upstream.answer(Reply::events(answer(&["All ", "done."])));
    let host = Host::with(upstream.options("openai")).await;
    let mut request = asks(&["look", "list"]);
    request.tools.as_mut().unwrap().host_tools[0].strict = Some(true);
    request.limits = Some(pb::TurnLimits { max_output_tokens: 500, ..pb::TurnLimits::default() });
    let failing = |call: &pb::ToolCall| pb::ToolResult {
        outcome: if call.tool_name == "list" { pb::ToolOutcome::Error.into() } else { pb::ToolOutcome::Success.into() },
        ..result(&call.call_id, "nothing there")
    };
    let seen = host.run_with(request, failing).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let response = messages(&seen).last().unwrap().response.clone().unwrap();
    assert_eq!(
        (response.provider_model.as_str(), response.provider_response_id.as_str()),
        ("gpt-4o-2024", "chatcmpl-1")
    );
    assert_eq!((response.finish_reason(), response.provider_finish_reason.as_str()), (FinishReason::Stop, "stop"));

    let [first, second] = &upstream.requests()[..] else { panic!("not two requests") };
    assert_eq!(first.path, "/v1/chat/completions");
    let header = |name: &str| first.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    assert_eq!(header("authorization"), Some(format!("Bearer {KEY}")));
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    let tool = |name: &str, strict: Value| {
        let mut function = json!({"name": name, "description": format!("does {name}"), "parameters": {"type": "object", "properties": {}}});
        if strict.is_boolean() {
            function["strict"] = strict;
        }
        json!({"type": "function", "function": function})
    };
    let common = json!({
        "model": "gpt-4o",
        "stream": true,
        "stream_options": {"include_usage": true},
        "max_completion_tokens": 500,
        "tools": [tool("look", json!(true)), tool("list", Value::Null)],
    });
    let with = |messages: Value| {
        let mut body = common.clone();
        body["messages"] = messages;
        body
    };
    let said = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Look both up."}]);
    assert_eq!(first.json, with(said.clone()));
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let mut behind = said.as_array().unwrap().clone();
    behind.extend([
        json!({"role": "assistant", "content": "One moment.", "tool_calls": [
            call("call_a", "look", "{\"where\": \"up\"}"), call("call_b", "list", "{}")]}),
        json!({"role": "tool", "tool_call_id": "call_a", "content": "nothing there"}),
        json!({"role": "tool", "tool_call_id": "call_b", "content": "Error: nothing there"}),
    ]);
    assert_eq!(second.json, with(Value::Array(behind)));
}

#[tokio::test(flavor = "multi_thread")]
async fn generation_parameters_are_sent_and_unsupported_ones_reported() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::events(answer(&["Fine."])));
    let host = Host::with(upstream.options("openai")).await;
    let generation = pb::Generation {
        temperature: Some(0.5),
        top_k: Some(5),
        stop_sequences: vec!["END".to_owned()],
        provider_options_json: r#"{"openai": {"service_tier": "flex", "model": "another"}, "other": {"x": 1}}"#
            .to_owned(),
        ..pb::Generation::default()
    };
    let seen = host.run(pb::ExecuteTurnRequest { generation: Some(generation), ..turn("s", MODEL, "Hello") }).await;
    let body = &upstream.requests()[0].json;
    assert_eq!(
        (&body["temperature"], &body["stop"], &body["service_tier"]),
        (&json!(0.5), &json!(["END"]), &json!("flex"))
    );
    assert_eq!((&body["model"], body.get("top_k"), body.get("x")), (&json!("gpt-4o"), None, None));
    let reported: Vec<&str> = seen
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::UnsupportedInput(report)) => Some(report.field.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reported, ["generation.top_k"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_reasoning_is_sent_back_to_the_model_that_wrote_it() {
    let upstream = Upstream::start().await;
    let first = "openrouter/rig__reasoning_tool_order_matrix__streaming_signed_agent_roundtrip.sse";
    upstream.answer(Reply::events(recorded(first)));
    upstream.answer(Reply::events(answer(&["Done."])));
    upstream.answer(Reply::events(answer(&["Done again."])));
    let host = Host::with(upstream.options("openrouter")).await;
    host.run_with(asks(&["lookup", "alpha", "beta"]), labels).await;
    let sent = |request: usize| upstream.requests()[request].json["messages"][2].clone();
    let details = &sent(1)["reasoning_details"];
    assert_eq!(
        (&details[0]["type"], &details[0]["signature"]),
        (&json!("reasoning.text"), &json!("signature_REDACTED_1"))
    );
    assert!(details[0]["text"].as_str().unwrap().starts_with("The user wants me to:\n1. Think briefly"));
    assert_eq!(details.as_array().unwrap().len(), 1, "fragments are joined: {details}");
    host.run(turn("s", "main/another", "And again.")).await;
    assert_eq!(sent(2).get("reasoning_details"), None, "another model could not read it");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_with_truncated_arguments_never_run() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::events(recorded(
        "openrouter/rig__tool_truncation_contract_matrix__streaming_gpt41_low_agent.sse",
    )));
    let host = Host::with(upstream.options("openrouter")).await;
    let seen = host.run(asks(&["file_report", "look"])).await;
    assert_eq!(
        completed(&seen).reason(),
        CompletionReason::Length,
        "the service said tool_calls; what is behind it said max_output_tokens"
    );
    assert!(kinds(&seen).contains(&"tool_call_cancelled"), "{:?}", kinds(&seen));
    assert!(!kinds(&seen).contains(&"tool_call_requested"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_aborts_the_provider_request() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::events(event(&json!({"content": "So far"}))).stall());
    let host = Host::with(upstream.options("openai")).await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    until_written(&mut stream, "So far").await;
    host.cancel("s", "").await;
    upstream.left(1).await;
    let seen = all(&mut stream).await;
    assert_eq!(kind(seen.last().unwrap()), "turn_cancelled");
    assert_eq!(outline(&host.messages("s").await), ["USER: \"Hello\"", "ASSISTANT: \"So far\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_before_the_first_byte_aborts_the_provider_request() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::events(answer(&["Never."])).after("never"));
    let host = Host::with(upstream.options("openai")).await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    upstream.asked(1).await;
    host.cancel("s", "").await;
    upstream.left(1).await;
    assert_eq!(kind(all(&mut stream).await.last().unwrap()), "turn_cancelled");
}

/// Row F22
#[tokio::test(flavor = "multi_thread")]
async fn oversized_call_arguments_fail_before_they_are_buffered() {
    let upstream = Upstream::start().await;
    let begin =
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look", "arguments": "{\"a\": \""}}]});
    let more = event(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "x".repeat(64 << 10)}}]}));
    let mut reply = Reply::events(event(&begin));
    for _ in 0..400 {
        reply = reply.then(more.clone());
    }
    upstream.answer(reply.stall());
    let host = Host::with(crate::harness::Options { call_attempts: 3, ..upstream.options("openai") }).await;
    let seen = host.run(asks(&["look"])).await;
    let failure = failed(&seen).failure.clone().unwrap();
    assert_eq!(
        (failure.reason(), failure.message.as_str()),
        (FailureReason::ProviderBroken, "response too large: more than 786432 bytes")
    );
    assert!(!failure.recoverable, "it would be too large again");
    upstream.left(1).await;
    assert_eq!(upstream.requests().len(), 1);
}

/// Rows F21 and I11
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_sse_event_is_not_buffered_without_bound() {
    let upstream = Upstream::start().await;
    let mut reply = Reply::events("data: ");
    for _ in 0..300 {
        reply = reply.then(vec![b'x'; 64 << 10]);
    }
    upstream.answer(reply.stall());
    let host = Host::with(upstream.options("openai")).await;
    let seen = host.run(turn("s", MODEL, "Hello")).await;
    let failure = failed(&seen).failure.clone().unwrap();
    assert_eq!(failure.message, "an event of the stream is larger than 16777216 bytes");
    assert!(!failure.recoverable, "it would be too large again");
    upstream.left(1).await;
}

/// A window of 0 tokens means that the window is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_declared_model_has_its_window_and_others_have_none() {
    let upstream = Upstream::start().await;
    let provider = declaring("main", upstream.settings(), "openai", &[("our-own", 32_000)]);
    // Without a window in the policy, which would take precedence.
    let options = crate::harness::Options { context: ContextPolicy::default(), ..crate::harness::Options::default() };
    let host = Host::with(options.provider("main", Arc::new(provider))).await;
    for (session, model, window) in [("s1", "main/our-own", 32_000), ("s2", "main/of/an-unknown-make", 0)] {
        upstream.answer(Reply::events(answer(&["Hello."])));
        let seen = host.run(turn(session, model, "Hello")).await;
        let started = seen.iter().find_map(|event| match &event.payload {
            Some(Payload::StepStarted(started)) => Some(started.context_window),
            _ => None,
        });
        assert_eq!(started, Some(window), "{model}");
        assert_eq!(content(&messages(&seen)[1].parts[0]), "Hello.");
    }
    assert_eq!(upstream.requests()[1].json["model"], "of/an-unknown-make");
}
