//! Behavior specific to turns with a provider that uses Anthropic Messages.

use std::collections::BTreeMap;

use contextd::{
    model::DeclaredModel,
    pb::{self, CompletionReason, FailureReason, FinishReason, event::Payload, part::Content},
    provider::anthropic::Anthropic,
};
use serde_json::{Value, json};

use crate::harness::{
    Host, Options,
    events::{completed, failed, kinds, message_text, messages, written},
    requests::{result, tools, turn},
    transcripts::{message, says},
    upstream::{
        KEY, Reply, Upstream,
        anthropic::{Answer, error, refused, said as answer},
        calling,
    },
    validate::Api,
};

/// A model whose reasoning is only valid after the prompt that produced it.
const MODEL: &str = "main/claude-haiku-5-5";

fn provider(upstream: &Upstream) -> Anthropic {
    let declared = DeclaredModel { context_window: Some(100_000), ..DeclaredModel::default() };
    let models = BTreeMap::from([("claude-haiku-5-5".to_owned(), declared)]);
    Anthropic::new("main", upstream.settings_for(Api::Anthropic), models).unwrap()
}

async fn host(upstream: &Upstream) -> Host {
    Host::with(calling(provider(upstream))).await
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    let found = headers.iter().find(|(known, _)| known == name);
    found.map_or("", |(_, value)| value)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_carry_the_key_and_what_the_host_switches_on() {
    let upstream = Upstream::start().await;
    upstream.answer(answer(&["Hello."]));
    let host = host(&upstream).await;
    let asks = pb::ExecuteTurnRequest {
        generation: Some(pb::Generation {
            provider_options_json: r#"{"anthropic":{"betas":["a-1"],"service_tier":"auto"}}"#.to_owned(),
            ..pb::Generation::default()
        }),
        ..turn("s", MODEL, "Hello")
    };
    let seen = host.run(asks).await;
    let message = messages(&seen).pop().unwrap();
    assert_eq!(message_text(message), "Hello.");
    let response = message.response.as_ref().unwrap();
    assert_eq!(
        (
            response.provider_model.as_str(),
            response.provider_response_id.as_str(),
            response.provider_finish_reason.as_str(),
            response.prompt_fingerprint.len(),
        ),
        ("claude-haiku-5-5", "msg_1", "end_turn", 33)
    );
    let request = upstream.requests().pop().unwrap();
    assert_eq!(request.path, "/v1/messages");
    assert_eq!(header(&request.headers, "x-api-key"), KEY);
    assert_eq!(header(&request.headers, "anthropic-beta"), "a-1");
    assert_eq!(request.json["service_tier"], "auto");
    let cache = json!({"type": "ephemeral"});
    assert_eq!(request.json["messages"][0]["content"][0]["cache_control"], cache);
}

/// Row A2
#[tokio::test(flavor = "multi_thread")]
async fn cached_tokens_are_part_of_the_reported_input() {
    let upstream = Upstream::start().await;
    let usage = json!({
        "input_tokens": 8, "cache_read_input_tokens": 24, "cache_creation_input_tokens": 5,
        "output_tokens": 30, "output_tokens_details": {"thinking_tokens": 12},
    });
    upstream.answer(Answer::default().said(&["Hello."]).usage(usage).reply());
    let host = host(&upstream).await;
    let seen = host.run(turn("s", MODEL, "Hello")).await;
    let usage = messages(&seen).pop().unwrap().response.as_ref().unwrap().usage.clone().unwrap();
    assert_eq!(
        [
            usage.input_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens
        ],
        [37, 30, 12, 24, 5]
    );
}

/// Row A1
#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_repeated_without_reasoning_that_the_service_refuses() {
    let upstream = Upstream::start().await;
    upstream.answer(Answer::default().thinking("Hm.").said(&["Yes."]).reply());
    upstream.answer(refused(
        400,
        "invalid_request_error",
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
    ));
    upstream.answer(answer(&["Still yes."]));
    let host = host(&upstream).await;
    host.run(turn("s", MODEL, "Is it?")).await;
    let seen = host.run(turn("s", MODEL, "Sure?")).await;
    assert_eq!(message_text(messages(&seen).pop().unwrap()), "Still yes.");
    assert!(!kinds(&seen).contains(&"turn_retrying"), "no step was voided");
    let sent = upstream.requests();
    let kinds_of = |body: &Value| {
        let blocks = body["messages"][1]["content"].as_array().cloned();
        let kinds = blocks.unwrap_or_default().into_iter();
        kinds.map(|block| block["type"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(kinds_of(&sent[1].json), ["thinking", "text"]);
    assert_eq!(kinds_of(&sent[2].json), ["text"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_of_the_service_goes_on_after_a_pause_and_is_kept() {
    let upstream = Upstream::start().await;
    upstream.answer(Answer::default().said(&["I search."]).paused().reply());
    let found = json!({
        "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "https://example.org", "encrypted_content": "E"}],
    });
    upstream.answer(Answer::default().block(found).said(&["Found."]).reply());
    upstream.answer(answer(&["As I said."]));
    let host = host(&upstream).await;
    let search = pb::ProviderTool {
        provider: "main".to_owned(),
        definition_json: r#"{"type":"web_search_20250305","name":"web_search"}"#.to_owned(),
    };
    let asks = |words: &str| pb::ExecuteTurnRequest {
        tools: Some(pb::ToolSet { provider_tools: vec![search.clone()], ..pb::ToolSet::default() }),
        ..turn("s", MODEL, words)
    };
    let seen = host.run(asks("Search.")).await;
    assert_eq!(completed(&seen).result.as_ref().unwrap().step_count, 2);
    let answers: Vec<&pb::Message> =
        messages(&seen).into_iter().filter(|message| message.role() == pb::Role::Assistant).collect();
    let finish = answers[0].response.as_ref().unwrap().finish_reason();
    assert_eq!(finish, FinishReason::Paused);
    let Some(Content::ProviderItem(item)) = &answers[0].parts[1].content else {
        panic!("no item: {:?}", answers[0].parts)
    };
    assert_eq!(
        (item.provider.as_str(), item.kind.as_str(), item.title.as_str()),
        ("main", "server_tool_use", "web_search: crimson")
    );
    host.run(asks("Again?")).await;
    let sent = upstream.requests();
    let content = |request: usize| {
        let blocks = sent[request].json["messages"][1]["content"].as_array().cloned();
        let blocks = blocks.unwrap_or_default().into_iter();
        let kinds = blocks.map(|block| block["type"].as_str().unwrap_or_default().to_owned());
        kinds.collect::<Vec<_>>()
    };
    assert_eq!(content(1), ["text", "server_tool_use"]);
    assert_eq!(content(2), ["text", "server_tool_use", "web_search_tool_result", "text"]);
    assert_eq!(sent[0].json["tools"][0]["name"], "web_search");
    host.assert_counted("s").await;
}

/// Row A2
#[tokio::test(flavor = "multi_thread")]
async fn items_of_another_provider_are_not_counted_as_they_are_not_sent() {
    let upstream = Upstream::start().await;
    upstream.answer(answer(&["Hello."]));
    let host = host(&upstream).await;
    let found = |provider: &str| pb::Part {
        content: Some(Content::ProviderItem(pb::ProviderItem {
            provider: provider.to_owned(),
            kind: "web_search_tool_result".to_owned(),
            item_json: json!({"type": "web_search_tool_result", "found": "x".repeat(8_000)}).to_string(),
            title: String::new(),
        })),
        ..pb::Part::default()
    };
    let search =
        |provider: &str| vec![says(pb::Role::User, "Search."), message(pb::Role::Assistant, vec![found(provider)])];
    let used = async |session: &str| host.stats(session).await.used.unwrap().tokens;
    // Without a model call in the session, everything is estimated.
    for (session, provider) in [("own", "main"), ("other", "other")] {
        host.create(pb::Session { session_id: session.to_owned(), model: MODEL.to_owned(), ..pb::Session::default() })
            .await;
        host.append(session, search(provider)).await;
    }
    let (own, other) = (used("own").await, used("other").await);
    assert!(own > 2_000 && other < 200, "{own} {other}");
    // After a measured call, only the new messages are estimated.
    host.run(turn("other", "", "Hello")).await;
    let before = used("other").await;
    host.append("other", search("other")).await;
    let after = used("other").await;
    assert!(after - before < 200, "{before} {after}");
    host.append("other", search("main")).await;
    assert!(used("other").await > after + 2_000);
    host.assert_counted("other").await;
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn errors_before_and_within_an_answer_have_their_reason() {
    let within = |kind: &str| {
        let begun = Answer::default().said(&["So far"]).begun();
        begun.then(error(kind, "Well."))
    };
    let table = [
        (refused(401, "authentication_error", "Well."), FailureReason::ProviderAuth),
        (refused(400, "invalid_request_error", "Well."), FailureReason::ProviderBadRequest),
        (refused(413, "request_too_large", "Well."), FailureReason::ContextOverflow),
        (refused(429, "rate_limit_error", "Well."), FailureReason::ProviderRateLimited),
        (refused(529, "overloaded_error", "Well."), FailureReason::ProviderOverloaded),
        (within("overloaded_error"), FailureReason::ProviderOverloaded),
        (within("api_error"), FailureReason::ProviderOverloaded),
        (Answer::default().said(&["So far"]).begun(), FailureReason::ProviderBroken),
    ];
    for (at, (reply, reason)) in table.into_iter().enumerate() {
        let upstream = Upstream::start().await;
        upstream.answer(reply);
        let host = host(&upstream).await;
        let seen = host.run(turn("s", MODEL, "Hello")).await;
        let failure = failed(&seen).failure.clone().unwrap();
        assert_eq!(failure.reason(), reason, "row {at}: {failure:?}");
        assert_eq!(host.messages("s").await.len(), 1, "no part of it is kept: row {at}");
        if failure.phase() == pb::FailurePhase::Generate {
            assert_eq!(failure.provider_request_id, "req_1", "row {at}");
        }
    }
}

/// Row F21
#[tokio::test(flavor = "multi_thread")]
async fn text_of_an_overloaded_answer_is_voided_before_the_next_attempt() {
    let upstream = Upstream::start().await;
    let begun = Answer::default().said(&["So far"]).begun();
    upstream.answer(begun.then(error("overloaded_error", "Overloaded")));
    upstream.answer(answer(&["At last."]));
    let options = Options { call_attempts: 2, ..calling(provider(&upstream)) };
    let host = Host::with(options).await;
    let seen = host.run(turn("s", MODEL, "Hello")).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let voided: Vec<&str> = seen
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::TurnRetrying(retrying)) => Some(retrying.voided_message_id.as_str()),
            _ => None,
        })
        .collect();
    let mut texts = written(&seen);
    texts.retain(|(message, _), _| !voided.contains(&message.as_str()));
    let texts: Vec<String> = texts.into_values().collect();
    assert_eq!(texts, ["At last."], "nothing is doubled");
    assert_eq!(host.messages("s").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rendered_request_is_the_one_that_is_sent() {
    let upstream = Upstream::start().await;
    upstream.answer(Answer::default().thinking("Hm.").call("c1", "look", &json!({"n": 1})).reply());
    upstream.answer(answer(&["Done."]));
    let host = host(&upstream).await;
    let asks = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Look.") };
    host.run_with(asks, |call| result(&call.call_id, "seen")).await;
    upstream.answer(answer(&["Yes."]));
    let append = says(pb::Role::User, "Sure?");
    let tools = pb::UpdateSessionRequest {
        session: Some(pb::Session { session_id: "s".to_owned(), tools: tools(&["look"]), ..pb::Session::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["tools".to_owned()] }),
        ..pb::UpdateSessionRequest::default()
    };
    host.sessions().update_session(tools).await.unwrap();
    host.append("s", vec![append]).await;
    let render = |format: pb::PromptFormat| pb::RenderContextRequest {
        session_id: "s".to_owned(),
        model: MODEL.to_owned(),
        format: format.into(),
        ..pb::RenderContextRequest::default()
    };
    let mut contexts = host.contexts();
    let mut bodies = Vec::new();
    for format in [pb::PromptFormat::Anthropic, pb::PromptFormat::Native] {
        let rendered = contexts.render_context(render(format)).await.unwrap();
        bodies.push(rendered.into_inner().prompt.unwrap().request_json);
    }
    host.run(pb::ExecuteTurnRequest { input: None, continue_transcript: true, ..turn("s", MODEL, "") }).await;
    let sent = upstream.requests().pop().unwrap().body;
    assert_eq!(bodies, [sent.clone(), sent]);
}

/// Row A11
#[tokio::test(flavor = "multi_thread")]
async fn the_service_counts_prompts_where_it_can() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::json(200, &json!({"input_tokens": 321})));
    let host = host(&upstream).await;
    let count = |exact| pb::CountTokensRequest {
        model: MODEL.to_owned(),
        messages: vec![says(pb::Role::User, "Hello")],
        exact,
        ..pb::CountTokensRequest::default()
    };
    let mut contexts = host.contexts();
    let counted = contexts.count_tokens(count(true)).await.unwrap().into_inner();
    let total = counted.total.unwrap();
    assert_eq!((total.tokens, total.basis()), (321, pb::TokenBasis::Actual));
    let request = upstream.requests().pop().unwrap();
    assert_eq!(request.path, "/v1/messages/count_tokens");
    let fields: Vec<&String> = request.json.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["messages", "model"], "nothing of how it is to answer");
    upstream.answer(Reply::json(404, &json!({})));
    let guessed = contexts.count_tokens(count(true)).await.unwrap().into_inner();
    assert_ne!(guessed.total.unwrap().basis(), pb::TokenBasis::Actual);
}
