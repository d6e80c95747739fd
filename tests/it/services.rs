//! Responses and errors of real model services: characters that are split between deltas, fields of other types, and
//! misleading error messages.

use std::sync::Arc;

use contextd::model::DeclaredModel;
use contextd::{
    pb::{self, CompletionReason, FailureReason, event::Payload, part::Content},
    provider::{openai::OpenAi, openai::dialect},
};
use serde_json::{Value, json};

use crate::harness::{
    Host, Options,
    events::{all, completed, failed, kinds, message_text, messages, written},
    requests::{result, tools, turn},
    transcripts::{calls, message, says},
    upstream::{Reply, Upstream, event, finished, said as answer},
};

const MODEL: &str = "main/gpt-4o";

/// An event whose delta is this JSON, unmodified.
fn raw(delta: &str) -> Vec<u8> {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n").into_bytes()
}

fn stream(deltas: &[&str], reason: &str) -> Vec<u8> {
    let mut body: Vec<u8> = deltas.iter().flat_map(|delta| raw(delta)).collect();
    body.extend(finished(reason));
    body
}

/// A service, and a replica that makes up to three attempts.
async fn service(dialect: &str) -> (Upstream, Host) {
    let upstream = Upstream::start().await;
    let host = Host::with(Options { call_attempts: 3, ..upstream.options(dialect) }).await;
    (upstream, host)
}

fn asks(session: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn(session, MODEL, "Hello") }
}

fn seen(call: &pb::ToolCall) -> pb::ToolResult {
    result(&call.call_id, "seen")
}

fn text(part: &pb::Part) -> &str {
    match &part.content {
        Some(Content::Text(text)) => text,
        Some(Content::Reasoning(reasoning)) => &reasoning.text,
        Some(Content::Refusal(refusal)) => refusal,
        other => panic!("no text: {other:?}"),
    }
}

fn call(part: &pb::Part) -> Option<&pb::ToolCall> {
    match &part.content {
        Some(Content::ToolCall(call)) => Some(call),
        _ => None,
    }
}

/// The deltas, and the text of each part with whether something in it was replaced.
type Cut = (&'static [&'static str], &'static [(&'static str, bool)]);

#[tokio::test(flavor = "multi_thread")]
async fn split_characters_are_joined_and_lone_surrogates_replaced_and_reported() {
    let (upstream, host) = service("openai").await;
    let table: [Cut; 5] = [
        (&[r#"{"content":"a\ud83d"}"#, r#"{"content":"\ude00b"}"#], &[("a😀b", false)]),
        (&[r#"{"content":"a\ud83db"}"#, r#"{"content":"\udc00"}"#], &[("a\u{fffd}b\u{fffd}", true)]),
        (&[r#"{"content":"a"}"#, r#"{"content":"\ud83d"}"#], &[("a\u{fffd}", true)]),
        (
            &[r#"{"reasoning":"h\ud83d"}"#, r#"{"reasoning":"\ude00m\ud83d"}"#, r#"{"content":"\ud83d\ude00"}"#],
            &[("h😀m\u{fffd}", true), ("😀", false)],
        ),
        (&[r#"{"refusal":"\ud83d"}"#, r#"{"refusal":"\ude00\udc00"}"#], &[("😀\u{fffd}", true)]),
    ];
    for (at, (deltas, expected)) in table.into_iter().enumerate() {
        upstream.answer(Reply::events(stream(deltas, "stop")));
        let events = host.run(turn(&format!("s{at}"), MODEL, "Hello")).await;
        completed(&events);
        let parts = &messages(&events).last().unwrap().parts;
        let parts: Vec<(&str, bool)> = parts.iter().map(|part| (text(part), part.sanitized)).collect();
        assert_eq!(parts, expected, "{deltas:?}");
        let shown: Vec<String> = written(&events).into_values().collect();
        assert_eq!(shown, expected.iter().map(|(text, _)| *text).collect::<Vec<_>>(), "{deltas:?}");
        assert_eq!(upstream.requests().len(), at + 1, "one call each");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_split_within_a_character_run_unchanged() {
    let (upstream, host) = service("openai").await;
    let table = [
        (r#""{\"at\": \"\ud83d""#, r#""\ude00\"}""#, r#"{"at": "😀"}"#, false),
        (r#""{\"at\": \"\ud83d""#, r#""\"}""#, "{\"at\": \"\u{fffd}\"}", true),
    ];
    for (at, (first, second, expected, sanitized)) in table.into_iter().enumerate() {
        let first = format!(
            r#"{{"tool_calls":[{{"index":0,"id":"c{at}","function":{{"name":"look","arguments":{first}}}}}]}}"#
        );
        let second = format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{second}}}}}]}}"#);
        upstream.answer(Reply::events(stream(&[&first, &second], "tool_calls")));
        upstream.answer(Reply::events(answer(&["Fine."])));
        let session = format!("s{at}");
        completed(&host.run_with(asks(&session), seen).await);
        let stored = host.messages(&session).await;
        let part = &stored[1].parts[0];
        assert_eq!((call(part).unwrap().arguments_json.as_str(), part.sanitized), (expected, sanitized));
        let sent = upstream.requests().last().unwrap().json["messages"][1]["tool_calls"][0].clone();
        assert_eq!(sent["function"]["arguments"], expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_arguments_are_sent_back_byte_for_byte() {
    let (upstream, host) = service("openai").await;
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let wrote = [r#"{"n": 1e999}"#, &deep, r#"{"s": "\ud83d"}"#, r#"{"\udc00": 1.50 }"#, " {} "];
    let all: Vec<Value> = wrote
        .iter()
        .enumerate()
        .map(|(at, arguments)| json!({"index": at, "id": format!("c{at}"), "function": {"name": "look", "arguments": arguments}}))
        .collect();
    upstream.answer(Reply::events([event(&json!({"tool_calls": all})), finished("tool_calls")].concat()));
    upstream.answer(Reply::events(answer(&["Fine."])));
    let events = host.run_with(asks("s"), seen).await;
    completed(&events);
    let stored = host.messages("s").await;
    let kept: Vec<&str> = stored[1].parts.iter().filter_map(call).map(|call| call.arguments_json.as_str()).collect();
    assert_eq!(kept, wrote);
    assert_eq!(stored[2].parts.len(), wrote.len(), "all of them ran");
    let sent = upstream.requests()[1].json["messages"][1]["tool_calls"].clone();
    let sent: Vec<&str> =
        sent.as_array().unwrap().iter().map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(sent, wrote);
}

#[tokio::test(flavor = "multi_thread")]
async fn irrelevant_oddities_in_a_stream_lose_no_answer() {
    let (upstream, host) = service("compatible").await;
    let hello = r#"data: {"choices":[{"delta":{"content":"Hello"}}]}"#;
    let padding = "x".repeat(5 << 20);
    let table = [
        ("an empty line of data", format!("data:\n\n{hello}\n\ndata: \n\n")),
        ("a numeric id", format!("data: {{\"id\":7,\"model\":1.5,\"choices\":[]}}\n\n{hello}\n\n")),
        ("an index in quotes", r#"data: {"choices":[{"index":"0","delta":{"content":"Hello"}}]}"#.to_owned()),
        (
            "a numeric reason",
            format!("{hello}\n\ndata: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":0}}]}}"),
        ),
        ("half of a character in an id", format!("{}\n\n{hello}", r#"data: {"id":"\ud83d","choices":[]}"#)),
        ("a corner of Groq's", format!("data: {{\"x_groq\":\"none\",\"choices\":[]}}\n\n{hello}")),
        ("5 MiB of something else", format!("data: {{\"debug\":\"{padding}\",\"choices\":[]}}\n\n{hello}")),
    ];
    let calls = table.len();
    for (at, (what, body)) in table.into_iter().enumerate() {
        let usage = r#"{"choices":[],"usage":{"prompt_tokens":11.0,"completion_tokens":"7"}}"#;
        upstream.answer(Reply::events(format!("{body}\n\ndata: {usage}\n\ndata: [DONE]\n\n")));
        let events = host.run(turn(&format!("s{at}"), MODEL, "Hello")).await;
        assert_eq!(completed(&events).reason(), CompletionReason::Stop, "{what}");
        let last = messages(&events).last().unwrap().to_owned().clone();
        assert_eq!(message_text(&last), "Hello", "{what}");
        let usage = last.response.unwrap().usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (11, 7), "{what}");
    }
    assert_eq!(upstream.requests().len(), calls, "one call each");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_an_old_form_or_a_name_in_pieces_is_run() {
    let (upstream, host) = service("compatible").await;
    let table: [(&[&str], &str); 4] = [
        (
            &[r#"{"function_call":{"name":"look","arguments":""}}"#, r#"{"function_call":{"arguments":"{}"}}"#],
            "function_call",
        ),
        (&[r#"{"function_call":{"name":"look","arguments":"{}"}}"#], "stop"),
        (
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"lo","arguments":""}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"name":"ok","arguments":"{}"}}]}"#,
            ],
            "tool_calls",
        ),
        (
            &[
                r#"{"content":"Let me see.","tool_calls":[{"index":"0","id":5,"function":{"name":"look","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":"0","id":5,"function":{"name":"look","arguments":"}"}}]}"#,
            ],
            "tool_calls",
        ),
    ];
    for (at, (deltas, reason)) in table.into_iter().enumerate() {
        upstream.answer(Reply::events(stream(deltas, reason)));
        upstream.answer(Reply::events(answer(&["Fine."])));
        let events = host.run_with(asks(&format!("s{at}")), seen).await;
        assert_eq!(completed(&events).reason(), CompletionReason::Stop, "{deltas:?}");
        assert!(kinds(&events).contains(&"tool_call_completed"), "{deltas:?}: {:?}", kinds(&events));
    }
}

/// A session with two old results of 2,000 tokens, which a compaction would remove.
async fn with_results(host: &Host, session: &str) {
    let made = pb::Session { session_id: session.to_owned(), model: MODEL.to_owned(), ..pb::Session::default() };
    host.create(made).await;
    for id in ["call10001", "call10002"] {
        let content = Content::ToolResult(result(id, &"x".repeat(8_000)));
        let part = pb::Part { content: Some(content), ..pb::Part::default() };
        let said = [says(pb::Role::User, "Look."), calls(&[id]), message(pb::Role::Tool, vec![part])];
        host.append(session, said.to_vec()).await;
    }
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn an_error_unrelated_to_the_prompt_does_not_shrink_the_context() {
    let (upstream, host) = service("openrouter").await;
    let table = [
        (400, "max_tokens 16384 exceeds the limit of 8192"),
        (400, "number of images exceeds the limit of 20"),
        (
            413,
            "Request too large for model `m` in organization `o` on tokens per minute (TPM): Limit 6000, Requested 9000",
        ),
    ];
    for (at, (status, words)) in table.into_iter().enumerate() {
        let session = format!("s{at}");
        with_results(&host, &session).await;
        upstream.answer(Reply::error(status, "some_code", words));
        let events = host.run(turn(&session, MODEL, "Well?")).await;
        let failure = failed(&events).failure.clone().unwrap();
        assert_ne!(failure.reason(), FailureReason::ContextOverflow, "{words}");
        assert!(!failure.recoverable, "{words}");
        assert!(!kinds(&events).contains(&"context_pruned"), "{words}: {:?}", kinds(&events));
        assert_eq!(upstream.requests().len(), at + 1, "{words}: {:?}", kinds(&events));
    }
    // The same for a prompt that is too long, reported by a gateway with the error of its upstream.
    with_results(&host, "long").await;
    let raw =
        json!({"error": {"message": "prompt is too long: 9 tokens > 8 maximum", "type": "invalid_request_error"}});
    let body = json!({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}});
    upstream.answer(Reply::json(400, &body));
    upstream.answer(Reply::events(answer(&["Fine."])));
    let events = host.run(turn("long", MODEL, "Well?")).await;
    completed(&events);
    assert!(kinds(&events).contains(&"context_pruned"), "{:?}", kinds(&events));
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn permanent_errors_of_services_are_not_repeated() {
    let (upstream, host) = service("compatible").await;
    let error =
        |message: &str, kind: &str, code: Value| json!({"error": {"message": message, "type": kind, "code": code}});
    let table = [
        (
            413,
            error(
                "Request too large for model `m` in organization `o` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.",
                "tokens",
                json!("rate_limit_exceeded"),
            ),
        ),
        (
            429,
            error(
                "Request too large for gpt-4o in organization o on tokens per min (TPM): Limit 30000, Requested 40000.",
                "tokens",
                json!("rate_limit_exceeded"),
            ),
        ),
        (
            429,
            error(
                "Your account org-1<ak-1> is suspended, please check your plan and billing details",
                "exceeded_current_quota_error",
                Value::Null,
            ),
        ),
        (429, error("Insufficient balance or no resource package. Please recharge.", "", json!("1113"))),
        (500, error("JSON schema conversion failed: Unrecognized schema", "server_error", json!(500))),
    ];
    for (at, (status, body)) in table.into_iter().enumerate() {
        upstream.answer(Reply::json(status, &body));
        let failure = failed(&host.run(turn(&format!("s{at}"), MODEL, "Hello")).await).failure.clone().unwrap();
        assert!(!failure.recoverable, "{body}");
        assert_eq!(upstream.requests().len(), at + 1, "{body}");
    }
}

/// The predicted size of the first prompt of a turn.
fn predicted(events: &[pb::Event]) -> i32 {
    let started = events.iter().find_map(|event| match &event.payload {
        Some(Payload::StepStarted(started)) => started.context_tokens.as_ref(),
        _ => None,
    });
    started.expect("a step").tokens
}

/// A response with long reasoning, and its reported usage.
fn thoughtful(words: &str, call: bool) -> Reply {
    let mut body = event(&json!({"reasoning_content": "thought ".repeat(2_000)}));
    let calls = json!([{"index": 0, "id": "call00001", "function": {"name": "look", "arguments": "{}"}}]);
    body.extend(event(&if call { json!({"tool_calls": calls}) } else { json!({"content": words}) }));
    let end =
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": if call { "tool_calls" } else { "stop" }}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": if call || words == "First." { 50 } else { 4_100 },
        "completion_tokens": 4_010, "completion_tokens_details": {"reasoning_tokens": 4_000}}});
    body.extend(format!("data: {end}\n\ndata: {usage}\n\ndata: [DONE]\n\n").into_bytes());
    Reply::events(body)
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_counted_only_where_it_is_sent_back() {
    let (upstream, host) = service("zai").await;
    // The reasoning of a response without calls is not sent with the next input.
    upstream.answer(thoughtful("First.", false));
    completed(&host.run(turn("s", MODEL, "Hello")).await);
    upstream.answer(Reply::events(answer(&["Fine."])));
    let events = host.run(turn("s", MODEL, "And now?")).await;
    assert!(!upstream.requests()[1].body.contains("thought"));
    assert!(predicted(&events) < 200, "{}", predicted(&events));

    // In a tool loop, reasoning is sent and counted. After the next input, it is neither sent nor counted.
    upstream.answer(thoughtful("", true));
    upstream.answer(thoughtful("Done.", false));
    let session = Some(pb::Session { model: MODEL.to_owned(), ..pb::Session::default() });
    let events = host.run_with(pb::ExecuteTurnRequest { session, ..asks("t") }, seen).await;
    completed(&events);
    assert!(upstream.requests()[3].body.contains("thought"));
    let steps: Vec<i32> = events
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::StepStarted(started)) => Some(started.context_tokens.as_ref()?.tokens),
            _ => None,
        })
        .collect();
    assert!(steps[1] > 4_000, "{steps:?}");
    upstream.answer(Reply::events(answer(&["Fine."])));
    let stats = host.stats("t").await.used.unwrap().tokens;
    let events = host.run(turn("t", MODEL, "And now?")).await;
    assert!(!upstream.requests()[4].body.contains("thought"));
    assert!(predicted(&events) < 300, "{}", predicted(&events));
    assert!(stats < 300, "{stats}");
}

/// A model with properties that the operator declared.
fn declared(upstream: &Upstream, dialect: &str, declared: DeclaredModel) -> Options {
    let models = [("gpt-4o".to_owned(), declared)].into();
    let provider = OpenAi::new("main", upstream.settings(), dialect::named(dialect).unwrap(), models).unwrap();
    Options::default().provider("main", Arc::new(provider))
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_model_facts_decide_what_is_sent() {
    use contextd::model::generation::ReasoningEffort::{High, Low};
    let wishes = pb::Generation {
        reasoning_effort: pb::ReasoningEffort::Medium.into(),
        parallel_tool_calls: Some(true),
        response_format: Some(pb::ResponseFormat {
            json_schema: Some(pb::JsonSchema { schema: Some(pb::json_schema::Schema::Json("{}".to_owned())) }),
            ..pb::ResponseFormat::default()
        }),
        ..pb::Generation::default()
    };
    let none = DeclaredModel {
        reasoning_efforts: Some(vec![]),
        parallel_tools: Some(false),
        json_schema: Some(false),
        ..DeclaredModel::default()
    };
    let some = DeclaredModel {
        reasoning_efforts: Some(vec![Low, High]),
        parallel_tools: Some(true),
        json_schema: Some(true),
        ..DeclaredModel::default()
    };
    let table = [
        (some, [json!("low"), json!(true), json!("json_schema")], vec![]),
        (
            none,
            [Value::Null, Value::Null, Value::Null],
            vec!["generation.reasoning_effort", "generation.parallel_tool_calls", "generation.response_format"],
        ),
    ];
    for (facts, expected, reported) in table {
        let upstream = Upstream::start().await;
        upstream.answer(Reply::events(answer(&["Fine."])));
        let host = Host::with(declared(&upstream, "compatible", facts)).await;
        let mut stream = host.execute(pb::ExecuteTurnRequest { generation: Some(wishes.clone()), ..asks("s") }).await;
        let events = all(&mut stream).await;
        completed(&events);
        let body = upstream.requests()[0].json.clone();
        let sent = [&body["reasoning_effort"], &body["parallel_tool_calls"], &body["response_format"]["type"]];
        assert_eq!(sent, [&expected[0], &expected[1], &expected[2]]);
        let said: Vec<&str> = events
            .iter()
            .filter_map(|event| match &event.payload {
                Some(Payload::UnsupportedInput(report)) => Some(report.field.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(said, reported);
    }
}
