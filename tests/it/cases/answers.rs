//! Responses of services that must be read as intended, and errors that must be reported with their reason.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use contextd::{
    model::{DeclaredModel, config::ContextPolicy},
    pb::{self, CompletionReason, FailureReason, event::Payload, part::Content},
    provider::{
        anthropic::Anthropic,
        gemini::Gemini,
        openai,
        responses::{Responses, dialect},
    },
};
use serde_json::{Value, json};

use super::answer;
use crate::harness::{
    Host, Options,
    events::{completed, failed, kinds, message_text, messages},
    requests::{clears, result, tools, turn},
    transcripts::{calls, message, says},
    upstream::{Reply, Upstream, anthropic, calling, event, gemini, responses},
    validate::Api,
};

fn asks(words: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["look_up"]), ..turn("s", "main/m", words) }
}

async fn run(host: &Host, words: &str) -> Vec<pb::Event> {
    host.run_with(asks(words), |call| result(&call.call_id, "found")).await
}

/// A host that calls the service once per step.
async fn once(options: Options) -> Host {
    Host::with(Options { call_attempts: 1, ..options }).await
}

fn speaks_anthropic(upstream: &Upstream) -> Options {
    let settings = upstream.settings_for(Api::Anthropic);
    calling(Anthropic::new("main", settings, BTreeMap::new()).unwrap())
}

fn speaks_responses(upstream: &Upstream, name: &str) -> Options {
    let settings = upstream.settings_for(Api::Responses);
    let dialect = dialect::named(name).unwrap();
    calling(Responses::new("main", settings, dialect, BTreeMap::new()).unwrap())
}

/// The text and the arguments of the calls of a message, in order.
fn written(message: &pb::Message) -> Vec<String> {
    let part = |part: &pb::Part| match &part.content {
        Some(Content::Text(text)) => Some(text.clone()),
        Some(Content::ToolCall(call)) => Some(call.arguments_json.clone()),
        _ => None,
    };
    message.parts.iter().filter_map(part).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_items_without_a_number_are_told_apart_by_their_ids() {
    let table: [(&str, &[&str]); 4] = [
        ("llamacpp_responses.m0", &["Hello"]),
        ("llamacpp_responses.m1", &["Let me look.", r#"{"q":1}"#]),
        ("llamacpp_responses.m2", &[r#"{"q":1}"#, r#"{"q":2}"#]),
        ("no_output_index.m", &["Hello", r#"{"q":1}"#]),
    ];
    for (stream, expected) in table {
        let upstream = Upstream::start().await;
        upstream.answer(answer(&format!("{stream}.1.sse")));
        upstream.answer(responses::said(&["Done."]));
        let host = once(speaks_responses(&upstream, "llamacpp")).await;
        let seen = run(&host, "Look.").await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{stream}");
        assert_eq!(written(messages(&seen)[1]), expected, "{stream}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p3_blocks_within_the_begin_of_a_message_are_part_of_the_answer() {
    let upstream = Upstream::start().await;
    for number in 1..=2 {
        upstream.answer(answer(&format!("message_start_content.claude-sonnet-4-5.{number}.sse")));
    }
    let host = once(speaks_anthropic(&upstream)).await;
    let seen = run(&host, "Look.").await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    assert_eq!(written(messages(&seen)[1]), [r#"{"q": 1}"#]);
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_c24_a_finish_reason_ends_an_answer_whether_the_stream_closes_or_stays_open() {
    let words = || event(&json!({"content": "Hello."}));
    let end = b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    for (what, whole) in [
        ("closes", Reply::events([words(), end.to_vec()].concat())),
        ("stays open", Reply::events([words(), end.to_vec()].concat()).stall()),
    ] {
        let upstream = Upstream::start().await;
        upstream.answer(whole);
        let host = once(upstream.options("openai")).await;
        let seen = run(&host, "Hello?").await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{what}");
        assert_eq!(message_text(messages(&seen)[1]), "Hello.", "{what}");
    }
    let upstream = Upstream::start().await;
    upstream.answer(Reply::events(words()));
    let host = once(upstream.options("openai")).await;
    let seen = run(&host, "Hello?").await;
    let failure = failed(&seen).failure.clone().unwrap();
    assert_eq!(failure.reason(), FailureReason::ProviderBroken);
}

#[tokio::test(flavor = "multi_thread")]
async fn p16_no_answer_is_committed_without_what_was_streamed() {
    for case in ["text", "call", "nameless"] {
        let upstream = Upstream::start().await;
        upstream.answer(answer(&format!("lost_deltas.{case}.1.sse")));
        let host = once(speaks_anthropic(&upstream)).await;
        let seen = run(&host, "Look.").await;
        let failure = failed(&seen).failure.clone().unwrap();
        assert_eq!(failure.reason(), FailureReason::ProviderBroken, "{case}");
        assert_eq!(messages(&seen).len(), 1, "{case}");
    }
    let upstream = Upstream::start().await;
    upstream.answer(gemini::Answer::default().call("", &json!({"q": 1})).reply());
    let settings = upstream.settings_for(Api::Gemini);
    let provider = Gemini::new("main", settings, BTreeMap::new()).unwrap();
    let host = once(calling(provider)).await;
    let seen = run(&host, "Look.").await;
    let failure = failed(&seen).failure.clone().unwrap();
    assert_eq!(failure.reason(), FailureReason::ProviderBroken, "gemini");
}

#[tokio::test(flavor = "multi_thread")]
async fn r05_a_call_is_made_once_more_without_reasoning_that_the_service_has_forgotten() {
    let upstream = Upstream::start().await;
    let settings = upstream.settings_for(Api::Responses);
    let dialect = dialect::named("openai").unwrap();
    let provider = Responses::new("main", settings, dialect, BTreeMap::new()).unwrap();
    let host = once(calling(provider)).await;
    let first = responses::Answer::default().reasoning("Hm.").said(&["Yes."]);
    upstream.answer(first.reply());
    let asks = |words: &str| turn("s", "main/gpt-5", words);
    host.run(asks("One.")).await;
    upstream.answer(Reply::error(
        400,
        "invalid_request_error",
        "Referenced reasoning item 'rs_1' was not found or has expired.",
    ));
    upstream.answer(responses::said(&["No."]));
    let seen = host.run(asks("Two.")).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let sent = upstream.requests();
    let thoughts = |at: usize| sent[at].body.matches(r#""type":"reasoning""#).count();
    assert_eq!((sent.len(), thoughts(1), thoughts(2)), (3, 1, 0));
}

/// The delay before the next attempt.
fn waited(events: &[pb::Event]) -> Option<Duration> {
    let failure = events.iter().find_map(|event| match &event.payload {
        Some(Payload::TurnRetrying(retrying)) => retrying.failure.clone(),
        Some(Payload::TurnFailed(failed)) => failed.failure.clone(),
        _ => None,
    });
    let after = failure?.retry_after?;
    Some(Duration::try_from(after).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn p14_a_wait_that_is_asked_for_within_a_stream_or_a_body_is_read() {
    let in_words = Duration::from_millis(11_054);
    let reset = json!({"error": {"type": "usage_limit_reached", "message": "No.", "resets_in_seconds": 90}});
    let upstream = Upstream::start().await;
    upstream.answer(answer("wait_in_the_stream.chat.1.sse"));
    let host = once(upstream.options("openai")).await;
    let seen = run(&host, "One.").await;
    assert_eq!(waited(&seen), Some(in_words));
    upstream.answer(Reply::json(429, &reset));
    let seen = run(&host, "Two.").await;
    assert_eq!(waited(&seen), Some(Duration::from_secs(90)));
    let upstream = Upstream::start().await;
    upstream.answer(answer("wait_in_the_stream.responses.1.sse"));
    let host = once(speaks_responses(&upstream, "openai")).await;
    let seen = run(&host, "Three.").await;
    assert_eq!(waited(&seen), Some(in_words));
}

#[tokio::test(flavor = "multi_thread")]
async fn p15_an_account_at_its_limit_is_not_called_again_and_another_model_is() {
    let anthropic = |words: &str| anthropic::refused(400, "invalid_request_error", words);
    let gemini = |words: &str| gemini::refused(429, "RESOURCE_EXHAUSTED", words);
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/cases/spend_limit.claude.1.json");
    let limit: Value = serde_json::from_slice(&std::fs::read(fixture).unwrap()).unwrap();
    let table = [
        (Reply::json(400, &limit), "the limit of the account"),
        (anthropic("This organization has been disabled."), "a disabled organization"),
        (
            anthropic::refused(429, "rate_limit_error", "Extra usage is required for long context requests."),
            "extra usage",
        ),
        (gemini("Your prepayment credits are depleted."), "prepaid credits"),
    ];
    for (refusal, what) in table {
        let main = Upstream::start().await;
        main.answer(refusal);
        let other = Upstream::start().await;
        other.answer(Reply::events(
            [event(&json!({"content": "Hello."})), crate::harness::upstream::finished("stop")].concat(),
        ));
        let settings = main.settings_for(Api::Anthropic);
        let provider = Anthropic::new("main", settings, BTreeMap::new()).unwrap();
        let options = calling(provider).provider("other", Arc::new(other.provider("other", "openai")));
        let host = Host::with(options).await;
        let request = pb::ExecuteTurnRequest {
            session: Some(pb::Session {
                policy_overrides: Some(pb::Policy {
                    fallback_models: vec!["other/gpt-4o".to_owned()],
                    ..pb::Policy::default()
                }),
                ..pb::Session::default()
            }),
            ..turn("s", "main/m", "Hello?")
        };
        let seen = host.run(request).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{what}");
        assert_eq!(main.requests().len(), 1, "{what}");
        assert!(kinds(&seen).contains(&"model_fallback"), "{what}");
    }

    let upstream = Upstream::start().await;
    upstream.answer(answer("cyber_policy.m.1.sse"));
    let host = Host::with(speaks_responses(&upstream, "openai")).await;
    let seen = run(&host, "Break in.").await;
    let failure = failed(&seen).failure.clone().unwrap();
    assert_eq!(failure.reason(), FailureReason::ProviderBadRequest);
    assert_eq!(upstream.requests().len(), 1);
}

/// A model with a window of 128,000 tokens at a service of this protocol.
fn of_protocol(protocol: &str, model: &str, upstream: &Upstream) -> Options {
    let declared =
        contextd::model::DeclaredModel { context_window: Some(128_000), ..contextd::model::DeclaredModel::default() };
    let models: BTreeMap<_, _> = [(model.to_owned(), declared)].into();
    let options = match protocol {
        "anthropic" => {
            let settings = upstream.settings_for(Api::Anthropic);
            calling(Anthropic::new("main", settings, models).unwrap())
        }
        "gemini" => {
            let settings = upstream.settings_for(Api::Gemini);
            calling(Gemini::new("main", settings, models).unwrap())
        }
        name => {
            let settings = upstream.settings_for(Api::Responses);
            let dialect = dialect::named(name).unwrap();
            calling(Responses::new("main", settings, dialect, models).unwrap())
        }
    };
    // Only the window of the model applies.
    Options { context: ContextPolicy::default(), ..options }
}

/// A turn in a session with this model.
fn turn_of(model: &str, words: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest {
        session: Some(pb::Session { model: model.to_owned(), ..pb::Session::default() }),
        ..turn("s", model, words)
    }
}

async fn stats(host: &Host) -> pb::ContextStats {
    let request = pb::GetContextStatsRequest { session_id: "s".to_owned(), ..pb::GetContextStatsRequest::default() };
    let stats = host.contexts().get_context_stats(request).await.unwrap();
    stats.into_inner().stats.unwrap()
}

/// Runs a turn with this response of the service. Returns the statistics after it and the recorded usage.
async fn measured_by(protocol: &str, model: &str, reply: Reply) -> (pb::ContextStats, pb::UsageRecorded) {
    let upstream = Upstream::start().await;
    upstream.answer(reply);
    let host = once(of_protocol(protocol, model, &upstream)).await;
    let request = turn_of(&format!("main/{model}"), "How is the weather?");
    let seen = host.run(request).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{protocol}");
    let recorded = seen.into_iter().find_map(|event| match event.payload {
        Some(Payload::UsageRecorded(recorded)) => Some(recorded),
        _ => None,
    });
    (stats(&host).await, recorded.expect("usage"))
}

/// The basis of the size of the next prompt: the tokens of the last prompt and of its response. 0 if no call measured
/// them.
fn anchor(stats: &pb::ContextStats) -> (i32, i32) {
    let basis = stats.size_basis.as_ref().expect("a basis");
    (basis.last_input_tokens, basis.last_output_tokens)
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_the_usage_of_hosted_tools_is_not_taken_for_the_size_of_the_prompt() {
    for (protocol, model, sum, of_prompt) in [
        ("anthropic", "claude-sonnet-4-5", 404_500, 0),
        ("gemini", "gemini-2.5-flash", 46_140, 40),
        ("openai", "gpt-5.1", 31_073, 0),
    ] {
        let reply = answer(&format!("hosted_usage.{model}.1.sse"));
        let (stats, recorded) = measured_by(protocol, model, reply).await;
        let size = stats.used.as_ref().unwrap().tokens;
        assert!((1..5_000).contains(&size), "{protocol}: {size}");
        assert_eq!(anchor(&stats).0, of_prompt, "{protocol}");
        let usage = recorded.usage.expect("what the call cost");
        assert_eq!(usage.input_tokens, sum, "{protocol}");
        assert_eq!(
            (recorded.estimate, stats.last_estimate),
            (None, None),
            "{protocol}: the prediction was of another prompt"
        );
    }
}

/// Anthropic reports the usage of each round of the model.
#[tokio::test(flavor = "multi_thread")]
async fn p1_anthropics_last_round_is_the_size_of_the_prompt() {
    let of_round = |input: u32, output: u32| json!({"type": "message", "input_tokens": input, "output_tokens": output, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 0});
    let usage = json!({"input_tokens": 404_500, "output_tokens": 943, "server_tool_use": {"web_search_requests": 10},
        "iterations": [of_round(2_479, 90), of_round(79_500, 60)]});
    let reply = anthropic::Answer::default().said(&["Sunny."]).usage(usage).reply();
    let (stats, recorded) = measured_by("anthropic", "claude-sonnet-4-5", reply).await;
    assert_eq!(anchor(&stats).0, 80_000);
    let size = stats.used.unwrap().tokens;
    assert!((80_000..80_100).contains(&size), "{size}");
    assert_eq!(recorded.usage.unwrap().input_tokens, 404_500);
}

/// xAI reports the last round in addition to the sums.
#[tokio::test(flavor = "multi_thread")]
async fn p1_xais_last_round_is_the_size_of_the_prompt() {
    let usage = json!({"input_tokens": 43_321, "output_tokens": 3_405, "num_server_side_tools_used": 11,
        "context_details": {"input_tokens": 18_015, "output_tokens": 2_603}});
    let reply = responses::Answer::default().said(&["Sunny."]).usage(usage).reply();
    let (stats, recorded) = measured_by("xai", "grok-4.3", reply).await;
    assert_eq!(anchor(&stats).0, 18_015);
    assert_eq!(recorded.usage.unwrap().input_tokens, 43_321);
}

#[tokio::test(flavor = "multi_thread")]
async fn u02_a_report_that_is_larger_than_the_window_is_not_believed() {
    let usage = |input: u32| json!({"input_tokens": input, "output_tokens": 3});
    for (reported, believed) in [(5_000_000, false), (128_001, false), (100_000, false), (8_000, true)] {
        let reply = responses::Answer::default().said(&["Sunny."]).usage(usage(reported)).reply();
        let (stats, recorded) = measured_by("openai", "gpt-5.1", reply).await;
        let size = stats.used.unwrap().tokens;
        assert_eq!(size > 1_000, believed, "{reported}: {size}");
        assert_eq!(recorded.estimate.is_some(), believed, "{reported}");
        assert_eq!(recorded.usage.unwrap().input_tokens.unsigned_abs(), reported);
    }
}

/// The size that CountTokens predicts for a prompt outside of a session.
async fn counted(host: &Host, model: &str) -> i32 {
    let request = pb::CountTokensRequest {
        model: model.to_owned(),
        system_prompt: "You answer in one word.".repeat(200),
        ..pb::CountTokensRequest::default()
    };
    let counted = host.contexts().count_tokens(request).await.unwrap();
    counted.into_inner().total.unwrap().tokens
}

/// Usage reports with far too many tokens, as from gateways that sum them up, and with far too few, as from gateways
/// that omit cached tokens.
#[tokio::test(flavor = "multi_thread")]
async fn u02_reports_far_from_what_was_sent_change_no_size_and_compact_nothing() {
    for (reported, sent) in [(110_000, "Hello."), (12, &*"All is well. ".repeat(10_000))] {
        let upstream = Upstream::start().await;
        let host = once(of_protocol("openai", "gpt-5.1", &upstream)).await;
        let before = counted(&host, "main/gpt-5.1").await;
        let mut sizes = Vec::new();
        for words in [sent, "And now?", "And now?", "And now?", "And now?"] {
            let reply = responses::Answer::default()
                .said(&["Well."])
                .usage(json!({"input_tokens": reported, "output_tokens": 3}))
                .reply();
            upstream.answer(reply);
            let seen = host.run(turn("s", "main/gpt-5.1", words)).await;
            assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
            assert!(!kinds(&seen).iter().any(|kind| kind.contains("compaction")), "{:?}", kinds(&seen));
            sizes.push(stats(&host).await.used.unwrap().tokens);
        }
        let first = sizes[0];
        assert!((first < 1_000) == (sent.len() < 1_000), "{sizes:?}");
        let grown = |size: &i32| (first..first + 500).contains(size);
        assert!(sizes.iter().all(grown), "{reported}: {sizes:?}");
        assert_eq!(counted(&host, "main/gpt-5.1").await, before, "{reported}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p12_sources_of_an_answer_over_chat_completions_are_kept() {
    for (dialect, stream, range) in [("openrouter", "or", (0, 22)), ("perplexity", "px", (0, 0))] {
        let upstream = Upstream::start().await;
        upstream.answer(answer(&format!("chat_citations.{stream}.1.sse")));
        let host = once(upstream.options(dialect)).await;
        let seen = run(&host, "When?").await;
        let said = messages(&seen)[1].parts[0].clone();
        let [source] = said.citations.as_slice() else {
            panic!("{dialect}: {said:?}");
        };
        assert_eq!((source.url.as_str(), source.title.as_str()), ("https://x.y", "t"), "{dialect}");
        assert_eq!((source.start_byte, source.end_byte), range, "{dialect}");
    }
}

/// The responses of a service of each protocol when its model calls a tool, when it stops after reasoning only, and
/// when it returns text.
fn silences() -> Vec<(&'static str, Speaks, [Reply; 3])> {
    let chat =
        |delta: Value, reason| Reply::events([event(&delta), crate::harness::upstream::finished(reason)].concat());
    let arguments = json!({"q": 1});
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}});
    let of_anthropic = anthropic::Answer::default;
    let of_responses = responses::Answer::default;
    let of_gemini = gemini::Answer::default;
    vec![
        (
            "chat",
            |upstream| upstream.options("deepseek"),
            [
                chat(json!({"tool_calls": [call]}), "tool_calls"),
                chat(json!({"reasoning_content": "It is sunny."}), "stop"),
                chat(json!({"content": "Sunny."}), "stop"),
            ],
        ),
        (
            "anthropic",
            speaks_anthropic,
            [
                of_anthropic().call("c1", "look_up", &arguments).reply(),
                of_anthropic().thinking("It is sunny.").reply(),
                anthropic::said(&["Sunny."]),
            ],
        ),
        (
            "responses",
            |upstream| speaks_responses(upstream, "openai"),
            [
                of_responses().call("c1", "look_up", &arguments).reply(),
                of_responses().reasoning("It is sunny.").reply(),
                responses::said(&["Sunny."]),
            ],
        ),
        (
            "gemini",
            |upstream| {
                let settings = upstream.settings_for(Api::Gemini);
                calling(Gemini::new("main", settings, BTreeMap::new()).unwrap())
            },
            [
                of_gemini().call("look_up", &arguments).signed().reply(),
                of_gemini().thinking("It is sunny.").reply(),
                gemini::said(&["Sunny."]),
            ],
        ),
    ]
}

type Speaks = fn(&Upstream) -> Options;

#[tokio::test(flavor = "multi_thread")]
async fn a03_a_model_that_only_thinks_is_called_once_more_then_its_turn_is_empty() {
    for (protocol, speaks, [call, thinks, speaks_up]) in silences() {
        let upstream = Upstream::start().await;
        for reply in [&call, &thinks, &speaks_up] {
            upstream.answer(reply.clone());
        }
        let twice = |upstream: &Upstream| Options { call_attempts: 3, ..speaks(upstream) };
        let host = Host::with(twice(&upstream)).await;
        let seen = run(&host, "How is the weather?").await;
        let end = completed(&seen);
        assert_eq!(end.reason(), CompletionReason::Stop, "{protocol}");
        assert_eq!(message_text(messages(&seen)[3]), "Sunny.", "{protocol}");
        let retried = kinds(&seen).iter().filter(|kind| **kind == "turn_retrying").count();
        assert_eq!(retried, 1, "{protocol}: {:?}", kinds(&seen));

        let upstream = Upstream::start().await;
        for reply in [&call, &thinks, &thinks] {
            upstream.answer(reply.clone());
        }
        let host = Host::with(twice(&upstream)).await;
        let seen = run(&host, "How is the weather?").await;
        let end = completed(&seen);
        assert_eq!(end.reason(), CompletionReason::Empty, "{protocol}");
        assert_eq!(upstream.requests().len(), 3, "{protocol}");
        let last = messages(&seen).pop().unwrap();
        let Some(Content::Reasoning(thought)) = &last.parts[0].content else {
            panic!("{protocol}: {last:?}");
        };
        assert_eq!(thought.text, "It is sunny.", "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a03_a_turn_whose_model_says_nothing_at_all_is_empty_too() {
    let upstream = Upstream::start().await;
    upstream.answer(anthropic::Answer::default().stopped("end_turn").reply());
    let host = once(speaks_anthropic(&upstream)).await;
    let seen = run(&host, "Hello?").await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Empty);
    assert_eq!(messages(&seen).len(), 1);
}

/// An image of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

#[tokio::test(flavor = "multi_thread")]
async fn p12_a_picture_that_a_model_makes_is_a_part_and_goes_back_as_its_service_takes_it() {
    let address = format!("data:image/png;base64,{PNG}");
    let image = json!({"type": "image_url", "image_url": {"url": address}});
    let chat = [
        event(&json!({"content": "Here."})),
        event(&json!({"images": [image]})),
        event(&json!({"images": [image]})),
        crate::harness::upstream::finished("stop"),
    ];
    let item = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PNG});
    let inline = json!({"inlineData": {"mimeType": "image/png", "data": PNG}});
    let speaks_gemini: Speaks = |upstream| {
        let settings = upstream.settings_for(Api::Gemini);
        calling(Gemini::new("main", settings, BTreeMap::new()).unwrap())
    };
    let table: [(&str, Speaks, Reply, Reply, Value); 3] = [
        (
            "chat",
            |upstream| upstream.options("openrouter"),
            Reply::events(chat.concat()),
            Reply::events([event(&json!({"content": "Yes."})), crate::harness::upstream::finished("stop")].concat()),
            image,
        ),
        (
            "responses",
            |upstream| speaks_responses(upstream, "openai"),
            responses::Answer::default().said(&["Here."]).item(item.clone()).reply(),
            responses::said(&["Yes."]),
            item,
        ),
        (
            "gemini",
            speaks_gemini,
            gemini::Answer::default().said(&["Here."]).part(inline.clone()).reply(),
            gemini::said(&["Yes."]),
            inline,
        ),
    ];
    for (protocol, speaks, draws, speaks_up, back) in table {
        let upstream = Upstream::start().await;
        upstream.answer(draws);
        upstream.answer(speaks_up);
        let host = once(speaks(&upstream)).await;
        let asks = |words: &str| turn("s", "main/gpt-5", words);
        let seen = host.run(asks("Draw a cat.")).await;
        let parts = &messages(&seen)[1].parts;
        let Some(Content::Media(media)) = &parts[1].content else {
            panic!("{protocol}: {parts:?}");
        };
        assert_eq!((parts.len(), media.media_type.as_str()), (2, "image/png"), "{protocol}");
        assert_eq!((media.width, media.height), (1, 1), "{protocol}");
        let seen = host.run(asks("Is it a cat?")).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{protocol}");
        let sent = upstream.requests()[1].json.clone();
        assert!(holds(&sent, &back), "{protocol}: {sent}");
    }
}

/// Whether `wanted` is contained in `whole`.
fn holds(whole: &Value, wanted: &Value) -> bool {
    let fits = match (whole, wanted) {
        (Value::Object(whole), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| whole.get(key).is_some_and(|it| it == value))
        }
        (whole, wanted) => whole == wanted,
    };
    fits || match whole {
        Value::Object(fields) => fields.values().any(|value| holds(value, wanted)),
        Value::Array(values) => values.iter().any(|value| holds(value, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p17_a_message_of_blanks_never_makes_a_request_that_ends_with_the_assistant() {
    for model in ["main/claude-sonnet-4-5", "main/claude-sonnet-4-6"] {
        let upstream = Upstream::start().await;
        upstream.answer(anthropic::said(&["Hello."]));
        upstream.answer(anthropic::said(&["Yes?"]));
        let host = once(speaks_anthropic(&upstream)).await;
        host.run(turn("s", model, "Hello!")).await;
        let seen = host.run(turn("s", model, " \n ")).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{model}");
        let sent = upstream.requests()[1].json.clone();
        let last = sent["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["role"], "user", "{model}: {sent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p17_render_context_shows_what_a_turn_sends_that_prunes_first() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::events(crate::harness::upstream::said(&["Yes."])));
    let host = once(upstream.options("openai")).await;
    host.create(pb::Session {
        session_id: "s".to_owned(),
        model: "main/gpt-4o".to_owned(),
        policy_overrides: Some(pb::Policy { prune: Some(clears(pb::PruneMode::Always, 0)), ..pb::Policy::default() }),
        ..pb::Session::default()
    })
    .await;
    let found =
        pb::Part { content: Some(Content::ToolResult(result("c1", &"found ".repeat(2_000)))), ..pb::Part::default() };
    host.append(
        "s",
        vec![
            says(pb::Role::User, "Look."),
            calls(&["c1"]),
            message(pb::Role::Tool, vec![found]),
            says(pb::Role::Assistant, "Found."),
        ],
    )
    .await;
    let request = pb::RenderContextRequest {
        session_id: "s".to_owned(),
        format: pb::PromptFormat::Native.into(),
        ..pb::RenderContextRequest::default()
    };
    let rendered = host.contexts().render_context(request).await.unwrap();
    let rendered = rendered.into_inner().prompt.unwrap();
    let body: Value = serde_json::from_str(&rendered.request_json).unwrap();
    let shown = body["messages"].as_array().unwrap();
    host.run(turn("s", "main/gpt-4o", "And now?")).await;
    let sent = upstream.requests()[0].json.clone();
    let sent = sent["messages"].as_array().unwrap();
    assert_eq!(shown[..], sent[..shown.len()]);
    assert_eq!(rendered.notes[0].kind(), pb::PromptNoteKind::Pruned);
    assert!(rendered.request_json.len() < 2_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn p9_signed_reasoning_is_not_sent_to_claude_over_a_gateway_after_other_words() {
    let detail = json!({"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0, "text": "Hm.", "signature": "c2ln"});
    let said = [
        event(&json!({"reasoning_details": [detail]})),
        event(&json!({"content": "Yes."})),
        crate::harness::upstream::finished("stop"),
    ]
    .concat();
    for (model, binds) in [("claude-opus-5.5", true), ("claude-opus-4.5", false)] {
        let upstream = Upstream::start().await;
        for _ in 0..4 {
            upstream.answer(Reply::events(said.clone()));
        }
        let host = once(upstream.options("openrouter")).await;
        let asks = |words: &str| turn("s", &format!("main/anthropic/{model}"), words);
        host.run(asks("One.")).await;
        host.run(asks("Two.")).await;
        let update = pb::UpdateSessionRequest {
            session: Some(pb::Session {
                session_id: "s".to_owned(),
                system_prompt: "Be kind.".to_owned(),
                ..pb::Session::default()
            }),
            update_mask: Some(prost_types::FieldMask { paths: vec!["system_prompt".to_owned()] }),
            ..pb::UpdateSessionRequest::default()
        };
        host.sessions().update_session(update).await.unwrap();
        host.run(asks("Three.")).await;
        host.run(asks("Four.")).await;
        let sent = upstream.requests();
        let thoughts: Vec<usize> = sent.iter().map(|sent| sent.body.matches("c2ln").count()).collect();
        let expected = if binds { [0, 1, 0, 1] } else { [0, 1, 2, 3] };
        assert_eq!(thoughts, expected, "{model}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_pictures_are_sent_than_the_service_takes_in_one_request() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::events(crate::harness::upstream::said(&["Six."])));
    let declared = DeclaredModel { input_media: Some(vec!["image/*".to_owned()]), ..DeclaredModel::default() };
    let models = [("sees".to_owned(), declared)].into();
    let groq = openai::dialect::named("groq").unwrap();
    let groq = openai::OpenAi::new("main", upstream.settings(), groq, models).unwrap();
    let host = once(calling(groq)).await;
    let picture = |number: u8| {
        let mut data = STANDARD.decode(PNG).unwrap();
        data.push(number);
        pb::Part {
            content: Some(Content::Media(pb::Media {
                media_type: "image/png".to_owned(),
                source: Some(pb::media::Source::Data(data)),
                ..pb::Media::default()
            })),
            ..pb::Part::default()
        }
    };
    let mut request = turn("s", "main/sees", "How many?");
    let input = request.input.get_or_insert_default();
    input.parts.extend((0..6).map(picture));
    let seen = host.run(request).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let sent = upstream.requests()[0].body.clone();
    assert_eq!(sent.matches("data:image/png").count(), 5, "{sent}");
    assert!(kinds(&seen).contains(&"unsupported_input"), "{:?}", kinds(&seen));
}
