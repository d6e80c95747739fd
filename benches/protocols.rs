//! Measures the cost of each provider protocol: building a request with 1 MB of context and reading a response of 1 MB,
//! in MB/s, compared with serde_json on the same bytes. `docs/benchmarks.md` explains the results.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

#[path = "protocols/prompt_cache.rs"]
mod prompt_cache;

use std::{
    collections::BTreeMap,
    hint::black_box,
    time::{Duration, Instant},
};

use contextd::{
    config::HttpConfig,
    context::estimate,
    model::{
        CallId, Content, Contents, Generation, Message, MessageId, ModelResponse, Part, Prompt, Role, Seq, ToolCall,
        ToolOutcome, ToolResult, Transcript,
        message::{FinishReason, StoredPart},
    },
    provider::{
        Provider,
        anthropic::{self, Anthropic},
        gemini::{self, Gemini},
        http::{Chunks, Decoder, Settings, sse},
        openai::{self, OpenAi, dialect},
        responses::{self, Responses},
    },
};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Rounds of each measurement; one under `cargo test`, which only checks that the benchmark runs.
const ROUNDS: u32 = 60;
/// Steps of the conversation; each is a tool call and its result.
const STEPS: usize = 250;
/// One line of a tool result, which is about 4 KB of source code.
const RESULT: &str = "    let batch = handing.batch(message, &parts, finish.reason, &mut rows);\n";
/// How often a result repeats the line.
const LINES: usize = 54;
/// The text of one delta, of a typical size.
const DELTA: &str = " of the \"queue\"";
/// Deltas in a response.
const DELTAS: usize = 70_000;
/// Bytes of one read from a socket.
const PIECE: usize = 8 << 10;

fn main() {
    let whole = std::env::args().any(|arg| arg == "--bench");
    let rounds = if whole { ROUNDS } else { 1 };
    let chat = OpenAi::new("main", settings(), dialect::openai(), BTreeMap::new()).unwrap();
    let messages = Anthropic::new("main", settings(), BTreeMap::new()).unwrap();
    println!("building a request of 1 MB");
    encode(rounds, "Chat Completions", &chat, "gpt-5");
    encode(rounds, "Anthropic Messages", &messages, "claude-sonnet-4-5");
    encode(rounds, "the same, bound to its prefix", &messages, "claude-opus-5-5");
    let openai = responses::dialect::named("openai").unwrap();
    let responses = Responses::new("main", settings(), openai, BTreeMap::new()).unwrap();
    encode(rounds, "Responses", &responses, "gpt-5");
    let gemini = Gemini::new("main", settings(), BTreeMap::new()).unwrap();
    encode(rounds, "Gemini", &gemini, "gemini-3-pro-preview");
    println!("\nreading a response of {DELTAS} deltas");
    let chat = || openai::decode::Decoder::new(dialect::named("openai").unwrap(), None);
    decode(rounds, "Chat Completions", chat, &chat_stream());
    let messages = || anthropic::decode::Decoder::new(None);
    decode(rounds, "Anthropic Messages", messages, &messages_stream());
    let responses = || responses::decode::Decoder::new(openai);
    decode(rounds, "Responses", responses, &responses_stream());
    let gemini = gemini::decode::Decoder::default;
    decode(rounds, "Gemini", gemini, &gemini_stream());
    let messages = Anthropic::new("main", settings(), BTreeMap::new()).unwrap();
    prompt_cache::report(&messages, &prompt("claude-sonnet-4-5"));
}

fn encode(rounds: u32, name: &str, provider: &dyn Provider, model: &str) {
    let prompt = prompt(model);
    let body = provider.request(&prompt).unwrap().body;
    let value: Value = serde_json::from_slice(&body).unwrap();
    let ours = time(rounds, || {
        black_box(provider.request(black_box(&prompt)).unwrap());
    });
    let floor = time(rounds, || {
        black_box(serde_json::to_vec(black_box(&value)).unwrap());
    });
    report(name, body.len(), ours, floor);
}

fn decode<D: Decoder>(rounds: u32, name: &str, decoder: impl Fn() -> D, stream: &[u8]) {
    let ours = time(rounds, || {
        let mut decoder = decoder();
        let mut reader = sse::Reader::default();
        let mut events = Vec::new();
        let mut chunks = Chunks::default();
        for piece in stream.chunks(PIECE) {
            reader.push(piece, &mut events).unwrap();
            for event in events.drain(..) {
                decoder.event(&event, &mut chunks).unwrap();
            }
            black_box(chunks.drain().count());
        }
    });
    let text = std::str::from_utf8(stream).unwrap();
    let payloads: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| data.starts_with('{')).collect();
    let floor = time(rounds, || {
        for payload in &payloads {
            black_box(serde_json::from_str::<Value>(payload).unwrap());
        }
    });
    report(name, stream.len(), ours, floor);
}

/// The median duration.
fn time(rounds: u32, mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

fn report(name: &str, bytes: usize, ours: Duration, floor: Duration) {
    let speed = |time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
    println!(
        "  {name:<32} {:>7.0} MB/s   serde_json {:>7.0} MB/s   ratio {:>5.2}   aim >= 0.5",
        speed(ours),
        speed(floor),
        speed(ours) / speed(floor)
    );
}

fn settings() -> Settings {
    Settings { base_url: "http://127.0.0.1:9/v1".to_owned(), headers: Vec::new(), http: HttpConfig::default() }
}

fn prompt(model: &str) -> Prompt {
    let mut messages = vec![message(Role::User, vec![Part::text("Find the bug.")], None)];
    for step in 0..STEPS {
        let id = CallId::new(format!("call_{step}"));
        let call = Part::new(Content::ToolCall(ToolCall {
            id: id.clone(),
            name: "read".to_owned(),
            arguments: format!(r#"{{"path": "src/turn/run/{step}.rs", "from": {step}}}"#),
        }));
        let result = Part::new(Content::ToolResult(ToolResult {
            call: id,
            name: "read".to_owned(),
            parts: vec![RESULT.repeat(LINES).into()],
            outcome: ToolOutcome::Success,
            truncation: None,
            display_text: String::new(),
        }));
        let said = vec![Part::text("I read on."), call];
        messages.push(message(Role::Assistant, said, Some(response(model))));
        messages.push(message(Role::Tool, vec![result], None));
    }
    Prompt {
        model: model.to_owned(),
        system: vec!["Be brief.".to_owned()],
        transcript: Transcript::new(messages).close().unwrap(),
        contents: Contents::default(),
        tools: Vec::new(),
        provider_tools: Vec::new(),
        max_output_tokens: Some(1_000),
        generation: Generation::default(),
        size: estimate::count(0),
    }
}

fn message(role: Role, parts: Vec<Part>, response: Option<ModelResponse>) -> Message {
    let stored = |part: Part| StoredPart {
        size: estimate::part(&part, role),
        estimator: estimate::ESTIMATOR.to_owned(),
        pruned: None,
        part,
    };
    Message {
        id: MessageId::new("m"),
        turn: None,
        step: 0,
        seq: Seq(1),
        role,
        parts: parts.into_iter().map(stored).collect(),
        overhead: 4,
        created_at: Timestamp::UNIX_EPOCH,
        response,
        pinned: false,
        metadata: BTreeMap::new(),
        queued: Vec::new(),
        is_summary: false,
        compacted_by: None,
        voided_at: None,
    }
}

fn response(model: &str) -> ModelResponse {
    ModelResponse {
        provider: "main".to_owned(),
        model: format!("main/{model}"),
        provider_model: String::new(),
        provider_response_id: String::new(),
        finish: FinishReason::ToolCalls,
        provider_finish: String::new(),
        usage: None,
        failure: None,
        time_to_first_token: None,
        elapsed: Duration::ZERO,
        provider_metadata: None,
        prompt_fingerprint: None,
    }
}

fn chat_stream() -> Vec<u8> {
    let delta = json!({
        "id": "chatcmpl-8f14e45fceea167a5a36dedd4bea2543", "object": "chat.completion.chunk",
        "created": 1_700_000_000, "model": "gpt-5-2025-08-07", "usage": null,
        "choices": [{"index": 0, "delta": {"content": DELTA}, "finish_reason": null}],
    });
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let mut stream = format!("data: {delta}\n\n").repeat(DELTAS);
    stream.push_str(&format!("data: {end}\n\ndata: [DONE]\n\n"));
    stream.into_bytes()
}

fn messages_stream() -> Vec<u8> {
    let event = |payload: Value| {
        let kind = payload["type"].as_str().unwrap_or_default().to_owned();
        format!("event: {kind}\ndata: {payload}\n\n")
    };
    let start = json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude"}});
    let open = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": DELTA}});
    let stop = json!({"type": "content_block_stop", "index": 0});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}});
    let last = json!({"type": "message_stop"});
    let mut stream = [start, open].map(event).concat();
    stream.push_str(&event(delta).repeat(DELTAS));
    stream.push_str(&[stop, end, last].map(event).concat());
    stream.into_bytes()
}

fn responses_stream() -> Vec<u8> {
    let id = "msg_0b5cbf1ce3f8b01c00696d5e6e9c00819c80af19e49f76161c";
    let event = |payload: Value| {
        let kind = payload["type"].as_str().unwrap_or_default().to_owned();
        format!("event: {kind}\ndata: {payload}\n\n")
    };
    let item = json!({"id": id, "type": "message", "status": "in_progress", "content": [], "role": "assistant"});
    let begun = json!({"type": "response.output_item.added", "item": item, "output_index": 0, "sequence_number": 2});
    let delta = json!({
        "type": "response.output_text.delta", "content_index": 0, "delta": DELTA, "item_id": id,
        "logprobs": [], "obfuscation": "w7aVB2", "output_index": 0, "sequence_number": 9,
    });
    let end = json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}});
    let mut stream = event(begun);
    stream.push_str(&event(delta).repeat(DELTAS));
    stream.push_str(&event(end));
    stream.into_bytes()
}

fn gemini_stream() -> Vec<u8> {
    let usage = json!({
        "promptTokenCount": 26, "candidatesTokenCount": 79, "thoughtsTokenCount": 176,
        "totalTokenCount": 281, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 26}],
    });
    let event = |finish: Value| {
        let content = json!({"role": "model", "parts": [{"text": DELTA}]});
        let candidate = json!({"content": content, "finishReason": finish, "index": 0});
        let payload = json!({
            "candidates": [candidate], "usageMetadata": usage,
            "modelVersion": "gemini-3-pro-preview", "responseId": "id_1",
        });
        format!("data: {payload}\r\n\r\n")
    };
    let mut stream = event(Value::Null).repeat(DELTAS);
    stream.push_str(&event(json!("STOP")));
    stream.into_bytes()
}
