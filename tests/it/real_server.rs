//! Conversations with a real server, llama.cpp, in the three protocols that it supports. These tests are ignored by
//! default: `script/real-server` starts the server and runs them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contextd::{
    config::HttpConfig,
    model::{DeclaredModel, config::ContextPolicy},
    pb::{self, FailureReason, ModelSource, event::Payload, model_service_client::ModelServiceClient, part::Content},
    provider::{
        Provider,
        anthropic::Anthropic,
        http::Settings,
        openai::{OpenAi, dialect},
        responses::{self, Responses},
    },
};

use serde_json::{Value, json};

use crate::harness::{
    Host, Options, as_worker,
    events::{all, cancelled, completed, failed, kinds, message_text, messages, outline, turn_id, until, until_action},
    requests::{input, result, tool, turn},
    transcripts::{message, says},
};

/// Variable with the address of the server, such as `127.0.0.1:8089`.
const ADDRESS: &str = "CONTEXTD_TEST_LLAMA_SERVER";

/// Variable with the address of a server of the same model with a template for tools and reasoning.
const TOOLS_ADDRESS: &str = "CONTEXTD_TEST_LLAMA_TOOLS_SERVER";

/// The model with its original template.
const MODEL: &str = "smollm2";

/// The model with a template that formats calls and definitions like Qwen 3. It is counted as Qwen 3.
const TOOLS_MODEL: &str = "smollm2-qwen3";

/// The window with which the server is started.
const WINDOW: i32 = 4_096;

const PROTOCOLS: [&str; 3] = ["chat", "responses", "messages"];

/// The address of a server.
fn address(variable: &str) -> String {
    std::env::var_os(variable)
        .and_then(|address| address.into_string().ok())
        .unwrap_or_else(|| panic!("{variable} is not set: run script/real-server"))
}

/// The server as a provider of each protocol, with this declared window.
fn providers(window: Option<u32>) -> Options {
    providers_of(&address(ADDRESS), MODEL, window)
}

/// A server as a provider of each protocol, with this declared window of its model.
fn providers_of(address: &str, model: &str, window: Option<u32>) -> Options {
    let settings = || Settings {
        base_url: format!("http://{address}/v1"),
        headers: Vec::new(),
        http: HttpConfig {
            first_byte_timeout: Duration::from_secs(120),
            stall_timeout: Duration::from_secs(60),
            ..HttpConfig::default()
        },
    };
    let declared = || {
        let declared = DeclaredModel { context_window: window, max_output: Some(256), ..DeclaredModel::default() };
        BTreeMap::from([(model.to_owned(), declared)])
    };
    let chat = OpenAi::new("chat", settings(), dialect::named("llamacpp").unwrap(), declared());
    let compatible = responses::dialect::named("llamacpp").unwrap();
    let responses = Responses::new("responses", settings(), compatible, declared());
    let messages = Anthropic::new("messages", settings(), declared());
    let providers: [Arc<dyn Provider>; 3] =
        [Arc::new(chat.unwrap()), Arc::new(responses.unwrap()), Arc::new(messages.unwrap())];
    let options =
        Options { context: ContextPolicy::default(), discover: Some(Duration::from_nanos(2)), ..Options::default() };
    PROTOCOLS.into_iter().zip(providers).fold(options, |options, (name, provider)| options.provider(name, provider))
}

fn model(protocol: &str) -> String {
    format!("{protocol}/{MODEL}")
}

fn asks(protocol: &str, words: &str, most: i32) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest {
        limits: Some(pb::TurnLimits { max_output_tokens: most, ..pb::TurnLimits::default() }),
        generation: Some(pb::Generation { temperature: Some(0.0), ..pb::Generation::default() }),
        ..turn(protocol, &model(protocol), words)
    }
}

/// The estimate of the last call, and the usage that the server reported for it.
fn recorded(events: &[pb::Event]) -> (pb::CallEstimate, pb::Usage) {
    let recorded = |event: &pb::Event| match &event.payload {
        Some(Payload::UsageRecorded(it)) => Some((it.estimate.unwrap(), it.usage.clone().unwrap())),
        _ => None,
    };
    events.iter().rev().find_map(recorded).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real server: script/real-server"]
async fn a_conversation_adds_up_in_each_protocol() {
    let host = Host::with(providers(Some(4_096))).await;
    eprintln!("protocol   turn  counted  reported  error   cached  output");
    for protocol in PROTOCOLS {
        let mut before = 0;
        for (number, words) in
            ["Name three rivers.", "Which one is the longest?", "Thank you. Say goodbye."].iter().enumerate()
        {
            let events = host.run(asks(protocol, words, 48)).await;
            completed(&events);
            let (estimate, usage) = recorded(&events);
            eprintln!(
                "{protocol:10} {:>4} {:>8} {:>9} {:>+5.1}% {:>8} {:>7}",
                number + 1,
                estimate.estimated_tokens,
                usage.input_tokens,
                100.0 * f64::from(estimate.estimated_tokens - usage.input_tokens) / f64::from(usage.input_tokens),
                usage.cache_read_tokens,
                usage.output_tokens,
            );
            assert_eq!(estimate.actual_tokens, usage.input_tokens, "{protocol}");
            assert_eq!(usage.total_tokens, usage.input_tokens + usage.output_tokens, "{protocol}");
            assert!(usage.input_tokens > before && usage.output_tokens > 0, "{protocol}: {usage:?}");
            assert!(
                (estimate.estimated_tokens - usage.input_tokens).abs() <= 4 + usage.input_tokens / 20,
                "{protocol}: {usage:?}"
            );
            let cached = usage.cache_read_tokens;
            assert!(cached < usage.input_tokens && (number == 0 || cached >= before / 2), "{protocol}: {usage:?}");
            before = usage.input_tokens;
        }
    }
}

/// A session that is configured with eight times the window of the server.
async fn mistaken(host: &Host, protocol: &str, managed: bool) {
    let policy = pb::Policy {
        context_window: Some(8 * WINDOW),
        compaction: Some(pb::CompactionPolicy {
            enabled: Some(managed),
            // A small model on two cores is slow.
            summary_max_tokens: Some(64),
            guard: pb::ContextGuard::None.into(),
            ..pb::CompactionPolicy::default()
        }),
        ..pb::Policy::default()
    };
    host.create(pb::Session {
        session_id: protocol.to_owned(),
        model: model(protocol),
        policy_overrides: Some(policy),
        ..pb::Session::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real server: script/real-server"]
async fn a_prompt_that_the_server_refuses_as_too_long_is_recognised_in_each_protocol() {
    let page = "The quick brown fox jumps over the lazy dog. ".repeat(150);
    for managed in [true, false] {
        let host = Host::with(providers(Some(8 * WINDOW.unsigned_abs()))).await;
        for protocol in PROTOCOLS {
            mistaken(&host, protocol, managed).await;
            let mut last = Vec::new();
            for _ in 0..3 {
                last = host.run(asks(protocol, &format!("Summarise: {page}"), 32)).await;
            }
            eprintln!("{protocol}, managed: {managed}: {:?}", kinds(&last));
            if managed {
                completed(&last);
                assert!(kinds(&last).contains(&"turn_retrying"), "{protocol}");
            } else {
                let failure = failed(&last).failure.clone().unwrap();
                assert_eq!(failure.reason(), FailureReason::ContextOverflow, "{protocol}: {failure:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real server: script/real-server"]
async fn the_window_is_what_the_server_says() {
    let host = Host::with(providers(None)).await;
    as_worker(host.replica.engine.prompts.refresh_models()).await.unwrap();
    let mut models = ModelServiceClient::new(host.replica.channel().await);
    for protocol in PROTOCOLS {
        let request = pb::ListModelsRequest { provider: protocol.to_owned(), ..pb::ListModelsRequest::default() };
        let listed = models.list_models(request).await.unwrap().into_inner().models;
        let windows: Vec<_> = listed.iter().map(|it| (it.model.as_str(), it.context_window)).collect();
        eprintln!("{protocol}: {windows:?}");
        let found = listed.iter().find(|it| it.model == model(protocol)).unwrap();
        let window = found.context_window.expect("the server says it");
        assert_eq!((window.tokens, window.source()), (WINDOW, ModelSource::Discovered), "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real server: script/real-server"]
async fn an_answer_is_cancelled_mid_stream_and_the_next_turn_goes_on() {
    let host = Host::with(providers(Some(4_096))).await;
    for protocol in PROTOCOLS {
        let mut stream = host.execute(asks(protocol, "Tell me a long story about the sea.", 256)).await;
        let first = until(&mut stream, |payload| matches!(payload, Payload::TextDelta(_))).await;
        host.cancel(protocol, &turn_id(&first)).await;
        cancelled(&all(&mut stream).await);
        completed(&host.run(asks(protocol, "Say hello.", 16)).await);
    }
}

/// llama.cpp does not support schemas in Messages: there the setting is omitted and reported.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real server: script/real-server"]
async fn an_answer_holds_to_a_schema_in_chat_and_responses() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "people": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["city", "people"],
        "additionalProperties": false,
    });
    let host = Host::with(providers(Some(4_096))).await;
    for protocol in PROTOCOLS {
        let mut request = asks(protocol, "Name a city and how many people live there.", 64);
        request.generation.as_mut().unwrap().response_format = Some(pb::ResponseFormat {
            json_schema: Some(pb::JsonSchema { schema: Some(pb::json_schema::Schema::Json(schema.to_string())) }),
            ..pb::ResponseFormat::default()
        });
        let events = host.run(request).await;
        let words = message_text(messages(&events).last().unwrap());
        eprintln!("{protocol}: {words}");
        let unsupported = kinds(&events).contains(&"unsupported_input");
        assert_eq!(unsupported, protocol == "messages", "{protocol}");
        if !unsupported {
            let answer: Value = serde_json::from_str(&words).unwrap();
            let fields: Vec<_> = answer.as_object().unwrap().keys().collect();
            assert_eq!(fields, ["city", "people"], "{protocol}");
        }
    }
}

/// Cities with the results of the weather and time tools.
const CITIES: [(&str, &str, &str); 3] =
    [("Oslo", "snow", "07:00"), ("Cairo", "sun", "14:00"), ("Rome", "rain", "12:00")];

/// Two tools, each with one of these cities as argument.
fn city_tools() -> Option<pb::ToolSet> {
    let cities: Vec<_> = CITIES.iter().map(|(city, ..)| city).collect();
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "enum": cities}},
        "required": ["city"],
        "additionalProperties": false,
    });
    let of_city = |name: &str, description: &str| pb::Tool {
        description: description.to_owned(),
        input_schema: Some(pb::JsonSchema { schema: Some(pb::json_schema::Schema::Json(schema.to_string())) }),
        ..tool(name)
    };
    Some(pb::ToolSet {
        host_tools: vec![of_city("weather", "The weather in a city."), of_city("clock", "The time in a city.")],
        ..pb::ToolSet::default()
    })
}

/// The result of a tool for a city.
fn found(tool: &str, city: &str) -> &'static str {
    let (_, weather, time) = CITIES.iter().find(|(name, ..)| *name == city).unwrap();
    match tool {
        "weather" => weather,
        "clock" => time,
        other => panic!("no tool {other}"),
    }
}

/// Earlier turns in which both tools are called at once, which a model of this size imitates.
fn examples() -> Vec<pb::InputMessage> {
    let turn = |(city, weather, time): &(&str, &str, &str)| {
        let id = |tool: &str| format!("{tool}-{city}");
        let call = |tool: &str| pb::Part {
            content: Some(Content::ToolCall(pb::ToolCall {
                call_id: id(tool),
                tool_name: tool.to_owned(),
                arguments_json: json!({"city": city}).to_string(),
                arguments_blob: None,
            })),
            ..pb::Part::default()
        };
        let given = |tool: &str| pb::Part {
            content: Some(Content::ToolResult(result(&id(tool), found(tool, city)))),
            ..pb::Part::default()
        };
        [
            says(pb::Role::User, &question(city)),
            message(pb::Role::Assistant, vec![call("weather"), call("clock")]),
            message(pb::Role::Tool, vec![given("weather"), given("clock")]),
            says(pb::Role::Assistant, &format!("It is {time} in {city}, with {weather}.")),
        ]
    };
    CITIES[..2].iter().flat_map(turn).collect()
}

fn question(city: &str) -> String {
    format!("How are things in {city}?")
}

/// The last prompt that the server processed, from its list of slots.
async fn last_prompt(server: &str) -> String {
    let page = format!("http://{server}/slots");
    let slots = reqwest::get(page).await.unwrap().text().await.unwrap();
    let slots: Value = serde_json::from_str(&slots).unwrap();
    slots[0]["prompt"].as_str().expect("a prompt").to_owned()
}

/// The size of the session's next prompt with this input, as counted by the server.
async fn counted_by_the_server(host: &Host, session: &str, words: &str) -> i32 {
    let request = pb::CountTokensRequest {
        session_id: session.to_owned(),
        messages: vec![input(words)],
        exact: true,
        ..pb::CountTokensRequest::default()
    };
    let counted = host.contexts().count_tokens(request).await.unwrap();
    let total = counted.into_inner().total.unwrap();
    assert_eq!(total.basis(), pb::TokenBasis::Actual, "{session}");
    total.tokens
}

fn call_of(part: &pb::Part) -> Option<&pb::ToolCall> {
    match &part.content {
        Some(Content::ToolCall(call)) => Some(call),
        _ => None,
    }
}

/// The reasoning of a message.
fn reasoning_of(message: &pb::Message) -> String {
    let text = |part: &pb::Part| match &part.content {
        Some(Content::Reasoning(reasoning)) => reasoning.text.clone(),
        _ => String::new(),
    };
    message.parts.iter().map(text).collect()
}

/// Fails unless the text contains these in this order.
fn assert_in_order(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for words in wanted {
        let Some((_, after)) = rest.split_once(words) else {
            panic!("no {words:?} after the others of {wanted:?} in {text}");
        };
        rest = after;
    }
}

/// A question that requires calls of both tools.
fn asks_with_tools(protocol: &str, city: &str) -> pb::ExecuteTurnRequest {
    let mut request = asks(protocol, &question(city), 160);
    request.model = format!("{protocol}/{TOOLS_MODEL}");
    request.session = None;
    let generation = request.generation.as_mut().unwrap();
    generation.parallel_tool_calls = Some(true);
    let required = pb::tool_choice::Choice::Mode(pb::ToolChoiceMode::Required.into());
    generation.tool_choice = Some(pb::ToolChoice { choice: Some(required) });
    request
}

/// The result of a call.
fn answered(call: &pb::ToolCall) -> pb::ToolResult {
    let arguments: Value = serde_json::from_str(&call.arguments_json).unwrap();
    let city = arguments["city"].as_str().unwrap();
    result(&call.call_id, found(&call.tool_name, city))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real server: script/real-server"]
async fn two_parallel_calls_are_answered_and_their_reasoning_goes_back_in_each_protocol() {
    let server = address(TOOLS_ADDRESS);
    let host = Host::with(providers_of(&server, TOOLS_MODEL, Some(4_096))).await;
    eprintln!("protocol   step  counted  reported  error   cached  output");
    for protocol in PROTOCOLS {
        host.create(pb::Session {
            session_id: protocol.to_owned(),
            model: format!("{protocol}/{TOOLS_MODEL}"),
            system_prompt: "Call weather and clock for the city. Then answer in one sentence.".to_owned(),
            tools: city_tools(),
            ..pb::Session::default()
        })
        .await;
        host.append(protocol, examples()).await;
        let exact = counted_by_the_server(&host, protocol, &question("Rome")).await;
        let mut stream = host.execute(asks_with_tools(protocol, "Rome")).await;
        let (mut events, [calls, _]) = until_action(&mut stream).await;
        let answer = messages(&events).last().copied().unwrap().clone();
        let called: Vec<_> = answer.parts.iter().filter_map(call_of).collect();
        let names: Vec<_> = called.iter().map(|it| it.tool_name.as_str()).collect();
        assert_eq!(names, ["weather", "clock"], "{protocol}");
        let ids: Vec<_> = called.iter().map(|it| it.call_id.clone()).collect();
        assert_eq!(ids, calls, "{protocol}: both are requested at once");
        // The last call gets its result first.
        for call in called.iter().rev() {
            host.submit(protocol, vec![answered(call)]).await;
        }
        events.extend(all(&mut stream).await);
        completed(&events);
        let stored = host.messages(protocol).await;
        let turn = outline(&stored[stored.len() - 4..]);
        eprintln!("{protocol}: {turn:#?}");

        let thought = reasoning_of(&answer);
        let thought = thought.trim();
        assert!(!thought.is_empty(), "{protocol}");
        let prompt = last_prompt(&server).await;
        let (_, turn) = prompt.rsplit_once(&question("Rome")).expect("the question");
        let tags = ["<think>", thought, "</think>", "weather", "clock"];
        let results = ["</tool_call>", "rain", "12:00"];
        assert_in_order(turn, &[&tags[..], &results].concat());
        // Before the first call, nothing is known about this template. Its tags are five tokens each, and one token
        // each in Qwen's vocabulary.
        check_steps(protocol, &events, exact, 8);

        // The next input ends the tool loop.
        let exact = counted_by_the_server(&host, protocol, &question("Oslo")).await;
        let events = host.run_with(asks_with_tools(protocol, "Oslo"), answered).await;
        completed(&events);
        check_steps(protocol, &events, exact, 20);
        // Messages includes all reasoning of the model, and the template decides whether it is used.
        let is_sent = last_prompt(&server).await.contains(thought);
        assert_eq!(is_sent, protocol == "messages", "{protocol}");
    }
}

/// Compares the estimate of each call with the usage that the server reported. `exact` is the server's count before the
/// first call. The first estimate may deviate by the size divided by `first_share`.
fn check_steps(protocol: &str, events: &[pb::Event], exact: i32, first_share: i32) {
    let recorded = |event: &pb::Event| match &event.payload {
        Some(Payload::UsageRecorded(it)) => Some((it.estimate.unwrap(), it.usage.clone().unwrap())),
        _ => None,
    };
    let steps: Vec<_> = events.iter().filter_map(recorded).collect();
    for (number, (estimate, usage)) in (1..).zip(&steps) {
        let error = estimate.estimated_tokens - usage.input_tokens;
        eprintln!(
            "{protocol:10} {number:>4} {:>8} {:>9} {:>+5.1}% {:>8} {:>7}",
            estimate.estimated_tokens,
            usage.input_tokens,
            100.0 * f64::from(error) / f64::from(usage.input_tokens),
            usage.cache_read_tokens,
            usage.output_tokens,
        );
        assert_eq!(estimate.actual_tokens, usage.input_tokens, "{protocol}");
        let share = if number == 1 { first_share } else { 20 };
        let bound = 4 + usage.input_tokens / share;
        assert!(error.abs() <= bound, "{protocol}: {estimate:?}");
    }
    let first = steps.first().expect("a call of the model");
    assert_eq!(first.1.input_tokens, exact, "{protocol}");
    assert!(steps.len() >= 2, "{protocol}: calls, then an answer");
}
