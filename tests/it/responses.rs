//! Turns with services that use the Responses API: the requests that are sent, and the parts of a response that are
//! returned.

use std::collections::BTreeMap;

use contextd::{
    pb::{self, CompletionReason, FinishReason, context_service_client::ContextServiceClient, part::Content},
    provider::responses::{Responses, dialect},
};
use serde_json::{Value, json};

use crate::harness::{
    Host, Options, Replica,
    events::{TWO_TOOLS, completed, kinds, message_text, messages},
    requests::{input, result, tools, turn},
    upstream::{
        Reply, Upstream, calling, recorded,
        responses::{Answer, failed, said as answers},
    },
    validate::Api,
};

const MODEL: &str = "main/gpt-5";

fn options(upstream: &Upstream) -> Options {
    let dialect = dialect::named("openai").unwrap();
    let settings = upstream.settings_for(Api::Responses);
    let provider = Responses::new("main", settings, dialect, BTreeMap::new()).unwrap();
    calling(provider.with_api_version(Some("preview".to_owned())))
}

fn asks(names: &[&str]) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(names), ..turn("s", MODEL, "Look both up.") }
}

/// The items of a request, by type.
fn types(request: &Value) -> Vec<&str> {
    let items = request["input"].as_array().unwrap();
    let kind = |item: &Value| item["type"].as_str().map(str::len);
    assert!(items.iter().all(|item| kind(item).is_some()));
    items.iter().filter_map(|item| item["type"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_two_parallel_tools_is_run_over_the_responses_api() {
    let folder = "openai-responses/rig__responses_sessions__parallel_tool_calls_single_turn_streaming";
    let upstream = Upstream::start().await;
    let first = recorded(&format!("{folder}.sse"));
    upstream.answer(Reply::new(200, "text/event-stream").pieces(&first, 7));
    upstream.answer(Reply::events(recorded(&format!("{folder}.2.sse"))));
    let host = Host::with(options(&upstream)).await;
    let labels = |call: &pb::ToolCall| result(&call.call_id, "crimson");
    let asked = asks(&["lookup_harbor_label", "lookup_orchard_label"]);
    let seen = host.run_with(asked, labels).await;
    assert_eq!(kinds(&seen)[..14], TWO_TOOLS[..14]);
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let stored = host.messages("s").await;
    assert_eq!(
        message_text(&stored[3]),
        "The labels are \"crimson-harbor\" for the harbor and \"silver-orchard\" for the orchard."
    );
    let response = stored[1].response.as_ref().unwrap();
    assert_eq!(
        (
            response.finish_reason(),
            response.provider_finish_reason.as_str(),
            response.provider_model.as_str(),
            response.usage.as_ref().unwrap().total_tokens,
        ),
        (FinishReason::ToolCalls, "completed", "gpt-4o-2024-08-06", 201)
    );
    let requests = upstream.requests();
    assert_eq!(requests[0].path, "/v1/responses?api-version=preview");
    assert_eq!(requests[0].json["store"], false);
    let calls = ["function_call", "function_call"];
    let outputs = ["function_call_output", "function_call_output"];
    assert_eq!(types(&requests[1].json), [&["message"][..], &calls, &outputs].concat());
    let input = &requests[1].json["input"];
    assert_eq!(
        (&input[1]["id"], &input[1]["call_id"], &input[3]["output"]),
        (&json!("fc_REDACTED_1"), &json!("call_REDACTED_1"), &json!("crimson"))
    );
    assert_eq!(requests[0].json["prompt_cache_key"], requests[1].json["prompt_cache_key"]);
}

/// Row A1
#[tokio::test(flavor = "multi_thread")]
async fn encrypted_reasoning_goes_back_with_its_call_to_the_same_model() {
    let upstream = Upstream::start().await;
    let first = "openai-responses/rig__reasoning_tool_roundtrip__streaming.sse";
    upstream.answer(Reply::events(recorded(first)));
    for text in ["Sunny.", "Sunny again.", "Still."] {
        upstream.answer(answers(&[text]));
    }
    let host = Host::with(options(&upstream)).await;
    let weather = |call: &pb::ToolCall| result(&call.call_id, "sunny");
    host.run_with(asks(&["get_weather"]), weather).await;
    host.run(turn("s", MODEL, "And now?")).await;
    host.run(turn("s", "main/gpt-4.1", "And you?")).await;
    let requests = upstream.requests();
    let whole = ["message", "reasoning", "function_call", "function_call_output"];
    assert_eq!(types(&requests[1].json), whole);
    assert_eq!(
        requests[1].json["input"][1],
        json!({"type": "reasoning", "id": "rs_REDACTED_1", "summary": [], "encrypted_content": "encrypted_content_REDACTED_2"})
    );
    assert_eq!(types(&requests[2].json)[..4], whole);
    let of_another = types(&requests[3].json);
    assert!(!of_another.contains(&"reasoning"), "{of_another:?}");
    assert_eq!(requests[3].json["include"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_hosted_tools_and_citations_are_stored_and_go_back() {
    let upstream = Upstream::start().await;
    let first =
        "openai-responses/pydantic__test_openai_responses__test_openai_responses_model_file_search_tool_stream.sse";
    upstream.answer(Reply::events(recorded(first)));
    upstream.answer(answers(&["Yes."]));
    let host = Host::with(options(&upstream)).await;
    let search = pb::ProviderTool {
        provider: "main".to_owned(),
        definition_json: r#"{"type":"file_search","vector_store_ids":["vs_1"]}"#.to_owned(),
    };
    let tools = pb::ToolSet { provider_tools: vec![search], ..pb::ToolSet::default() };
    let seen = host
        .run(pb::ExecuteTurnRequest { tools: Some(tools), ..turn("s", MODEL, "What is the capital of France?") })
        .await;
    let parts = messages(&seen).last().unwrap().parts.clone();
    let Some(Content::ProviderItem(item)) = &parts[0].content else { panic!("{parts:?}") };
    assert_eq!((item.provider.as_str(), item.kind.as_str()), ("main", "file_search_call"));
    let citation = &parts[1].citations[0];
    assert_eq!((citation.title.as_str(), citation.start_byte, citation.end_byte), ("tmp8l5_2pzy.txt", 30, 30));
    host.run(turn("s", MODEL, "Sure?")).await;
    let requests = upstream.requests();
    assert_eq!(requests[0].json["tools"], json!([{"type": "file_search", "vector_store_ids": ["vs_1"]}]));
    assert_eq!(types(&requests[1].json), ["message", "file_search_call", "message", "message"]);
    let sent: Value = serde_json::from_str(&item.item_json).unwrap();
    assert_eq!(requests[1].json["input"][1], sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_refuses_summaries_is_called_without_them_from_then_on() {
    let upstream = Upstream::start().await;
    let words = "Your organization must be verified to generate reasoning summaries.";
    upstream.answer(Reply::error(400, "unsupported_value", words));
    for text in ["One.", "Two."] {
        upstream.answer(answers(&[text]));
    }
    let host = Host::with(options(&upstream)).await;
    let seen = host.run(turn("s", MODEL, "Hello")).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    host.run(turn("s", MODEL, "Again")).await;
    let requests = upstream.requests();
    let summaries: Vec<&Value> = requests.iter().map(|it| &it.json["reasoning"]["summary"]).collect();
    assert_eq!(summaries, [&json!("auto"), &Value::Null, &Value::Null]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_within_a_stream_is_retried_like_any_other() {
    let upstream = Upstream::start().await;
    let begun = Answer::default().said(&["Hel"]).begun();
    upstream.answer(begun.then(failed("server_error", "Sorry.")));
    upstream.answer(answers(&["Hello"]));
    let host = Host::with(Options { call_attempts: 2, ..options(&upstream) }).await;
    let seen = host.run(turn("s", MODEL, "Hello")).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    assert_eq!(message_text(messages(&seen).last().unwrap()), "Hello");
    assert!(kinds(&seen).contains(&"turn_retrying"), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_cannot_read_its_own_reasoning_is_called_without() {
    let upstream = Upstream::start().await;
    upstream.answer(Answer::default().reasoning("Hm.").said(&["Hello"]).reply());
    let words = "The encrypted content xyz could not be verified.";
    upstream.answer(Reply::error(400, "invalid_encrypted_content", words));
    upstream.answer(answers(&["Fine."]));
    let host = Host::with(options(&upstream)).await;
    host.run(turn("s", MODEL, "Hello")).await;
    let seen = host.run(turn("s", MODEL, "So?")).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let requests = upstream.requests();
    assert_eq!(types(&requests[1].json), ["message", "reasoning", "message", "message"]);
    assert_eq!(types(&requests[2].json), ["message"; 3]);
    assert_eq!(requests[2].json["input"][1]["id"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_are_counted_by_the_service() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::json(200, &json!({"object": "response.input_tokens", "input_tokens": 321})));
    let (_database, replica) = Replica::alone(options(&upstream)).await;
    let mut contexts = ContextServiceClient::new(replica.channel().await);
    let request = pb::CountTokensRequest {
        model: MODEL.to_owned(),
        exact: true,
        tools: tools(&["look"]),
        messages: vec![input("Hello")],
        ..pb::CountTokensRequest::default()
    };
    let counted = contexts.count_tokens(request).await.unwrap().into_inner();
    assert_eq!(counted.total.unwrap().tokens, 321);
    let asked = &upstream.requests()[0];
    assert_eq!(asked.path, "/v1/responses/input_tokens?api-version=preview");
    assert_eq!(asked.json["input"][0]["content"], "Hello");
    assert_eq!(asked.json["store"], Value::Null);
}

/// llama.cpp (b11434) counts tokens, older servers do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_predicted_where_a_local_server_does_not_count() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::json(200, &json!({"input_tokens": 321})));
    upstream.answer(Reply::json(404, &json!({})));
    let dialect = dialect::named("llamacpp").unwrap();
    let settings = upstream.settings_for(Api::Responses);
    let provider = Responses::new("main", settings, dialect, BTreeMap::new()).unwrap();
    let (_database, replica) = Replica::alone(calling(provider)).await;
    let mut contexts = ContextServiceClient::new(replica.channel().await);
    for counts in [true, false] {
        let request = pb::CountTokensRequest {
            model: MODEL.to_owned(),
            exact: true,
            messages: vec![input("Hello")],
            ..pb::CountTokensRequest::default()
        };
        let counted = contexts.count_tokens(request).await.unwrap().into_inner();
        let basis = counted.total.unwrap().basis();
        assert_eq!(basis == pb::TokenBasis::Actual, counts);
    }
}
