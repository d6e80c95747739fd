//! Conversations with a real server, llama.cpp's, in the three protocols that it speaks. These tests
//! are ignored unless they are asked for: `script/real-server` starts the server and runs them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contextd::{
    model::{Declared, config::ContextPolicy},
    pb::{
        self, FailureReason, ModelSource, event::Payload, model_service_client::ModelServiceClient,
    },
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
    events::{all, cancelled, completed, failed, kinds, messages, said, turn_id, until},
    requests::turn,
};

/// Where the server listens, such as `127.0.0.1:8089`.
const ADDRESS: &str = "CONTEXTD_TEST_LLAMA_SERVER";

/// What the server is started with.
const WINDOW: i32 = 4_096;

const PROTOCOLS: [&str; 3] = ["chat", "responses", "messages"];

/// The server as a provider of each protocol, with that window declared.
fn providers(window: Option<u32>) -> Options {
    let address = std::env::var_os(ADDRESS)
        .and_then(|address| address.into_string().ok())
        .unwrap_or_else(|| panic!("{ADDRESS} is not set: run script/real-server"));
    let settings = || Settings {
        base_url: format!("http://{address}/v1"),
        headers: Vec::new(),
        connect_timeout: Duration::from_secs(10),
        first_byte_timeout: Duration::from_secs(120),
        stall_timeout: Duration::from_secs(60),
        max_request_bytes: None,
    };
    let declared = || {
        let model = Declared {
            context_window: window,
            max_output: Some(256),
            ..Declared::default()
        };
        BTreeMap::from([("smollm2".to_owned(), model)])
    };
    let chat = OpenAi::new("chat", settings(), dialect::named("llamacpp"), declared());
    let compatible = responses::dialect::named("llamacpp").unwrap();
    let responses = Responses::new("responses", settings(), compatible, declared());
    let messages = Anthropic::new("messages", settings(), declared());
    let providers: [Arc<dyn Provider>; 3] = [
        Arc::new(chat.unwrap()),
        Arc::new(responses.unwrap()),
        Arc::new(messages.unwrap()),
    ];
    let options = Options {
        context: ContextPolicy::default(),
        discover: Some(Duration::from_nanos(2)),
        ..Options::default()
    };
    PROTOCOLS
        .into_iter()
        .zip(providers)
        .fold(options, |options, (name, provider)| {
            options.provider(name, provider)
        })
}

fn model(protocol: &str) -> String {
    format!("{protocol}/smollm2")
}

fn asks(protocol: &str, words: &str, most: i32) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest {
        limits: Some(pb::TurnLimits {
            max_output_tokens: most,
            ..pb::TurnLimits::default()
        }),
        generation: Some(pb::Generation {
            temperature: Some(0.0),
            ..pb::Generation::default()
        }),
        ..turn(protocol, &model(protocol), words)
    }
}

/// What was counted before the last call of these events, and what the server reported after it.
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
        for (number, words) in [
            "Name three rivers.",
            "Which one is the longest?",
            "Thank you. Say goodbye.",
        ]
        .iter()
        .enumerate()
        {
            let events = host.run(asks(protocol, words, 48)).await;
            completed(&events);
            let (estimate, usage) = recorded(&events);
            eprintln!(
                "{protocol:10} {:>4} {:>8} {:>9} {:>+5.1}% {:>8} {:>7}",
                number + 1,
                estimate.estimated_tokens,
                usage.input_tokens,
                100.0 * f64::from(estimate.estimated_tokens - usage.input_tokens)
                    / f64::from(usage.input_tokens),
                usage.cache_read_tokens,
                usage.output_tokens,
            );
            assert_eq!(estimate.actual_tokens, usage.input_tokens, "{protocol}");
            assert_eq!(
                usage.total_tokens,
                usage.input_tokens + usage.output_tokens,
                "{protocol}"
            );
            assert!(
                usage.input_tokens > before && usage.output_tokens > 0,
                "{protocol}: {usage:?}"
            );
            assert!(
                (estimate.estimated_tokens - usage.input_tokens).abs()
                    <= 4 + usage.input_tokens / 20,
                "{protocol}: {usage:?}"
            );
            let cached = usage.cache_read_tokens;
            assert!(
                cached < usage.input_tokens && (number == 0 || cached >= before / 2),
                "{protocol}: {usage:?}"
            );
            before = usage.input_tokens;
        }
    }
}

/// A session that takes the window of the server for eight times what it is.
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
                last = host
                    .run(asks(protocol, &format!("Summarise: {page}"), 32))
                    .await;
            }
            eprintln!("{protocol}, managed: {managed}: {:?}", kinds(&last));
            if managed {
                completed(&last);
                assert!(kinds(&last).contains(&"turn_retrying"), "{protocol}");
            } else {
                let failure = failed(&last).failure.clone().unwrap();
                assert_eq!(
                    failure.reason(),
                    FailureReason::ContextOverflow,
                    "{protocol}: {failure:?}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real server: script/real-server"]
async fn the_window_is_what_the_server_says() {
    let host = Host::with(providers(None)).await;
    as_worker(host.replica.engine.refresh_models())
        .await
        .unwrap();
    let mut models = ModelServiceClient::new(host.replica.channel().await);
    for protocol in PROTOCOLS {
        let request = pb::ListModelsRequest {
            provider: protocol.to_owned(),
            ..pb::ListModelsRequest::default()
        };
        let listed = models
            .list_models(request)
            .await
            .unwrap()
            .into_inner()
            .models;
        let windows: Vec<_> = listed
            .iter()
            .map(|it| (it.model.as_str(), it.context_window))
            .collect();
        eprintln!("{protocol}: {windows:?}");
        let found = listed
            .iter()
            .find(|it| it.model == model(protocol))
            .unwrap();
        let window = found.context_window.expect("the server says it");
        assert_eq!(
            (window.tokens, window.source()),
            (WINDOW, ModelSource::Discovered),
            "{protocol}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real server: script/real-server"]
async fn an_answer_is_cancelled_mid_stream_and_the_next_turn_goes_on() {
    let host = Host::with(providers(Some(4_096))).await;
    for protocol in PROTOCOLS {
        let mut stream = host
            .execute(asks(protocol, "Tell me a long story about the sea.", 256))
            .await;
        let first = until(&mut stream, |payload| {
            matches!(payload, Payload::TextDelta(_))
        })
        .await;
        host.cancel(protocol, &turn_id(&first)).await;
        cancelled(&all(&mut stream).await);
        completed(&host.run(asks(protocol, "Say hello.", 16)).await);
    }
}

/// llama.cpp has no schemas in Messages: there the setting is not sent, and reported.
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
            json_schema: Some(pb::JsonSchema {
                schema: Some(pb::json_schema::Schema::Json(schema.to_string())),
            }),
            ..pb::ResponseFormat::default()
        });
        let events = host.run(request).await;
        let words = said(messages(&events).last().unwrap());
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
