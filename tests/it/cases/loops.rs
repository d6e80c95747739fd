//! Rules of services about tool loops: what must be returned with tool results, and which settings are refused in
//! combination with tools.

use std::{collections::BTreeMap, sync::Arc};

use contextd::{
    pb::{self, CompletionReason, event::Payload, tool_choice::Choice},
    provider::{Provider, anthropic::Anthropic, gemini::Gemini},
};
use serde_json::{Value, json};

use super::answer;
use crate::harness::{
    Host,
    events::completed,
    requests::{result, tools, turn},
    transcripts::{calls, message},
    upstream::{Reply, Upstream, calling},
    validate::Api,
};

/// A turn with the tool of these cases.
fn asks(model: &str, words: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["look_up"]), ..turn("s", &format!("main/{model}"), words) }
}

/// Runs a turn to its end. Every call gets a result.
async fn run(host: &Host, request: pb::ExecuteTurnRequest) -> Vec<pb::Event> {
    let seen = host.run_with(request, |call| result(&call.call_id, "found")).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    seen
}

/// The settings that were omitted, with the reason.
fn left_out(events: &[pb::Event]) -> Vec<String> {
    let payloads = events.iter().filter_map(|event| event.payload.as_ref());
    payloads
        .filter_map(|payload| match payload {
            Payload::UnsupportedInput(left_out) => Some(left_out.field.clone()),
            _ => None,
        })
        .collect()
}

/// The reasoning of each response in a request, by field.
fn reasoning(body: &Value) -> Vec<(&'static str, String)> {
    let messages = body["messages"].as_array().unwrap().iter();
    let of = |message: &Value| {
        ["reasoning_content", "reasoning"]
            .into_iter()
            .find_map(|field| Some((field, message[field].as_str()?.to_owned())))
            .unwrap_or_default()
    };
    messages.filter(|message| message["role"] == "assistant").map(of).collect()
}

/// The requests of a turn with a tool call and of the turn after it.
async fn two_turns(dialect: &str, stream: &str, model: &str) -> Vec<Value> {
    let upstream = Upstream::start().await;
    upstream.plays(dialect);
    for number in [1, 2, 2] {
        upstream.answer(answer(&format!("{stream}.{model}.{number}.sse")));
    }
    let host = Host::with(upstream.options(dialect)).await;
    run(&host, asks(model, "Look it up.")).await;
    run(&host, asks(model, "Thanks!")).await;
    let sent = upstream.requests();
    sent.into_iter().map(|sent| sent.json).collect()
}

const THOUGHT: &str = "I need the tool.";

#[tokio::test(flavor = "multi_thread")]
async fn c19_deepseek_reads_the_reasoning_of_a_turn_with_calls_in_all_later_requests() {
    let sent = two_turns("deepseek", "kimi_loop", "kimi-k2.5").await;
    let content = |text: &str| ("reasoning_content", text.to_owned());
    assert_eq!(reasoning(&sent[1]), [content(THOUGHT)]);
    assert_eq!(reasoning(&sent[2])[0], content(THOUGHT));
}

#[tokio::test(flavor = "multi_thread")]
async fn c12_p5_kimi_reads_reasoning_beside_each_call_or_words_that_stand_for_it() {
    let sent = two_turns("moonshot", "kimi_loop", "kimi-k2.5").await;
    let content = |text: &str| ("reasoning_content", text.to_owned());
    assert_eq!(reasoning(&sent[1]), [content(THOUGHT)]);
    assert_eq!(reasoning(&sent[2])[0], content(THOUGHT));

    let upstream = Upstream::start().await;
    upstream.answer(answer("kimi_loop.kimi-k2.5.2.sse"));
    upstream.answer(answer("kimi_loop.kimi-k2.5.2.sse"));
    let host = Host::with(upstream.options("moonshot")).await;
    host.create(pb::Session { session_id: "s".to_owned(), ..pb::Session::default() }).await;
    let found = pb::Part { content: Some(pb::part::Content::ToolResult(result("c1", "found"))), ..pb::Part::default() };
    host.append(
        "s",
        vec![
            message(pb::Role::User, vec![crate::harness::requests::text("Look.")]),
            calls(&["c1"]),
            message(pb::Role::Tool, vec![found]),
        ],
    )
    .await;
    run(&host, asks("kimi-k2.5", "And now?")).await;
    let off = pb::ExecuteTurnRequest {
        generation: Some(pb::Generation {
            reasoning_effort: pb::ReasoningEffort::None.into(),
            ..pb::Generation::default()
        }),
        ..asks("kimi-k2.5", "Thanks!")
    };
    run(&host, off).await;
    let sent = upstream.requests();
    assert_eq!(reasoning(&sent[0].json), [content("[Not kept.]")]);
    assert_eq!(reasoning(&sent[1].json)[0].0, "", "{}", sent[1].body);
}

#[tokio::test(flavor = "multi_thread")]
async fn p8_reasoning_goes_back_within_a_tool_loop_to_services_that_read_it() {
    let table = [
        ("zai", "glm_loop", "glm-4.7", "reasoning_content"),
        ("llamacpp", "gpt_oss_loop", "gpt-oss-20b", "reasoning_content"),
        ("vllm", "gpt_oss_loop", "gpt-oss-120b", "reasoning"),
        ("lmstudio", "gpt_oss_loop", "gpt-oss", "reasoning"),
        ("ollama", "gpt_oss_loop", "gpt-oss", "reasoning"),
        ("groq", "gpt_oss_loop", "gpt-oss-120b", "reasoning"),
    ];
    for (dialect, stream, model, field) in table {
        let sent = two_turns(dialect, stream, model).await;
        assert_eq!(reasoning(&sent[1]), [(field, THOUGHT.to_owned())], "{dialect}");
        let later = reasoning(&sent[2]);
        assert!(later.iter().all(|(field, _)| field.is_empty()), "{dialect}: {later:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_an_id_of_a_call_goes_back_as_it_was_to_the_service_that_made_it() {
    let id = "functions.get_weather:0";
    let first = concat!(
        r#"data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"functions.get_weather:0","type":"function","function":{"name":"look_up","arguments":"{}"}}]},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        "\n\ndata: [DONE]\n\n",
    );
    for (dialect, kept) in [("moonshot", true), ("vllm", true), ("openai", false)] {
        let upstream = Upstream::start().await;
        upstream.answer(Reply::events(first));
        upstream.answer(answer("kimi_loop.kimi-k2.5.2.sse"));
        let host = Host::with(upstream.options(dialect)).await;
        run(&host, asks("kimi-k2.5", "Look.")).await;
        let sent = upstream.requests().pop().unwrap().json;
        let messages = sent["messages"].as_array().unwrap();
        let call = messages.iter().find(|it| it["tool_calls"].is_array()).unwrap();
        let result = messages.iter().find(|it| it["role"] == "tool").unwrap();
        assert_eq!(call["tool_calls"][0]["id"] == id, kept, "{dialect}: {sent}");
        assert_eq!(call["tool_calls"][0]["id"], result["tool_call_id"], "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a17_thinking_without_a_signature_goes_back_to_another_maker_as_it_came() {
    let event = |json: Value| {
        let kind = json["type"].as_str().unwrap().to_owned();
        format!("event: {kind}\ndata: {json}\n\n")
    };
    let block = |index: u32, start: Value, delta: Value| {
        [
            event(json!({"type": "content_block_start", "index": index, "content_block": start})),
            event(json!({"type": "content_block_delta", "index": index, "delta": delta})),
            event(json!({"type": "content_block_stop", "index": index})),
        ]
        .concat()
    };
    let start = json!({"type": "message_start", "message": {
        "id": "m", "type": "message", "role": "assistant", "model": "deepseek-v4", "content": [],
        "usage": {"input_tokens": 7, "output_tokens": 1},
    }});
    let end = |reason: &str| {
        let delta = json!({"stop_reason": reason});
        [
            event(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}})),
            event(json!({"type": "message_stop"})),
        ]
        .concat()
    };
    let thinking =
        block(0, json!({"type": "thinking", "thinking": ""}), json!({"type": "thinking_delta", "thinking": THOUGHT}));
    let call = block(
        1,
        json!({"type": "tool_use", "id": "t1", "name": "look_up", "input": {}}),
        json!({"type": "input_json_delta", "partial_json": "{}"}),
    );
    let text = block(0, json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": "done"}));
    let upstream = Upstream::start().await;
    upstream.answer(Reply::events([event(start.clone()), thinking, call, end("tool_use")].concat()));
    upstream.answer(Reply::events([event(start), text, end("end_turn")].concat()));
    let settings = upstream.settings_for(Api::Anthropic);
    let provider = Anthropic::new("main", settings, BTreeMap::new()).unwrap();
    let host = Host::with(calling(provider)).await;
    run(&host, asks("deepseek-v4", "Look.")).await;
    let sent = upstream.requests().pop().unwrap().json;
    assert_eq!(sent["messages"][1]["content"][0], json!({"type": "thinking", "thinking": THOUGHT}), "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_gpt_that_cannot_think_beside_tools_is_called_without_and_that_is_reported() {
    for model in ["gpt-5.4", "gpt-5.6"] {
        let upstream = Upstream::start().await;
        for number in 1..=2 {
            upstream.answer(answer(&format!("gpt_5_5_tools.{model}.{number}.sse")));
        }
        upstream.answer(answer(&format!("gpt_5_5_tools.{model}.2.sse")));
        let host = Host::with(upstream.options("openai")).await;
        let seen = run(&host, asks(model, "Look.")).await;
        assert_eq!(left_out(&seen), ["generation.reasoning_effort"], "{model}");
        let without = pb::ExecuteTurnRequest { tools: tools(&[]), ..asks(model, "Thanks!") };
        run(&host, without).await;
        let sent = upstream.requests();
        let effort: Vec<&Value> = sent.iter().map(|sent| &sent.json["reasoning_effort"]).collect();
        assert_eq!(effort, [&json!("none"), &json!("none"), &Value::Null], "{model}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_claude_does_not_think_in_a_forced_call_and_that_is_reported() {
    for model in ["claude-opus-4-7", "claude-opus-4-6", "claude-haiku-5-5"] {
        let upstream = Upstream::start().await;
        for number in 1..=2 {
            upstream.answer(answer(&format!("forced_and_thinking.claude-opus-4-7.{number}.sse")));
        }
        let settings = upstream.settings_for(Api::Anthropic);
        let provider = Anthropic::new("main", settings, BTreeMap::new()).unwrap();
        let host = Host::with(calling(provider)).await;
        let forced = pb::ExecuteTurnRequest {
            generation: Some(pb::Generation {
                reasoning_effort: pb::ReasoningEffort::High.into(),
                tool_choice: Some(pb::ToolChoice { choice: Some(Choice::ToolName("look_up".to_owned())) }),
                ..pb::Generation::default()
            }),
            ..asks(model, "Look.")
        };
        let seen = run(&host, forced).await;
        assert_eq!(left_out(&seen), ["generation.reasoning_effort"], "{model}");
        let sent = upstream.requests();
        assert_eq!(sent[0].json["tool_choice"]["type"], "tool", "{model}");
        assert_ne!(sent[0].json["thinking"]["type"], "adaptive", "{model}");
        assert_eq!(sent[1].json["thinking"]["type"], "adaptive", "{model}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p13_settings_that_a_service_refuses_are_left_out_and_reported() {
    let stops: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
    let stops = pb::Generation { stop_sequences: stops, ..pb::Generation::default() };
    let effort = pb::Generation { reasoning_effort: pb::ReasoningEffort::High.into(), ..pb::Generation::default() };
    let table = [
        ("groq", "groq_stops.llama-3.3-70b-versatile", &stops, "stop_sequences", "stop"),
        ("xai", "grok_effort.grok-4.20-reasoning", &effort, "reasoning_effort", "reasoning_effort"),
        ("xai", "grok_effort.grok-build-0.1", &effort, "reasoning_effort", "reasoning_effort"),
    ];
    for (dialect, stream, generation, setting, field) in table {
        let upstream = Upstream::start().await;
        upstream.plays(dialect);
        upstream.answer(answer(&format!("{stream}.1.sse")));
        let (_, model) = stream.split_once('.').unwrap();
        let host = Host::with(upstream.options(dialect)).await;
        let request = pb::ExecuteTurnRequest {
            generation: Some(generation.clone()),
            ..turn("s", &format!("main/{model}"), "Hello.")
        };
        let seen = run(&host, request).await;
        assert_eq!(left_out(&seen), [format!("generation.{setting}")], "{stream}");
        let sent = upstream.requests().pop().unwrap().json;
        assert_eq!(sent[field], Value::Null, "{stream}: {sent}");
    }

    let upstream = Upstream::start().await;
    upstream.answer(answer("gemini_json_and_tools.gemini-2.5-flash.1.sse"));
    let settings = upstream.settings_for(Api::Gemini);
    let provider: Arc<dyn Provider> = Arc::new(Gemini::new("main", settings, BTreeMap::new()).unwrap());
    let options = crate::harness::Options::default().provider("main", provider);
    let host = Host::with(options).await;
    let request = pb::ExecuteTurnRequest {
        generation: Some(pb::Generation {
            response_format: Some(pb::ResponseFormat::default()),
            ..pb::Generation::default()
        }),
        ..asks("gemini-2.5-flash", "Hello.")
    };
    let seen = run(&host, request).await;
    assert_eq!(left_out(&seen), ["generation.response_format"]);
    let sent = upstream.requests().pop().unwrap().json;
    assert_eq!(sent["generationConfig"]["responseMimeType"], Value::Null, "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g04_gemini_is_sent_references_with_nothing_beside_them() {
    let schema = json!({
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Place", "title": "Where", "description": "There."}},
        "$defs": {"Place": {"type": "string", "title": "Place"}},
    });
    let upstream = Upstream::start().await;
    upstream.answer(answer("gemini_json_and_tools.gemini-2.5-flash.1.sse"));
    let settings = upstream.settings_for(Api::Gemini);
    let provider = Gemini::new("main", settings, BTreeMap::new()).unwrap();
    let host = Host::with(calling(provider)).await;
    let mut request = asks("gemini-2.5-flash", "Hello.");
    let tool = &mut request.tools.as_mut().unwrap().host_tools[0];
    tool.input_schema = Some(pb::JsonSchema { schema: Some(pb::json_schema::Schema::Json(schema.to_string())) });
    run(&host, request).await;
    let sent = upstream.requests().pop().unwrap().json;
    let declared = &sent["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"];
    assert_eq!(declared["properties"]["at"], json!({"$ref": "#/$defs/Place"}), "{sent}");
    assert_eq!(declared["$defs"], schema["$defs"], "{sent}");
}
