//! Recorded responses of model services, and the checks that every decoder must pass: it returns
//! what `expected.json` states however the bytes are split, and never takes a truncated response
//! for a complete one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

pub(super) use super::fuzzing::{DecodeOutcome, decode};
use super::{
    Chunk, Finish,
    assemble::{AssembledResponse, Assembly, Progress},
    error::Kind,
    http::{Decoder, Fault, sse},
};
use crate::model::{CallId, Content, FinishReason, MessageId, Part};

/// Recordings of at most this many bytes are checked at every split.
const SMALL: usize = 5 << 10;

/// Random splits of each recording.
const ROUNDS: u64 = 4;

/// Limit on the bytes of a piece in a random split.
const MAX_PIECE: usize = 700;

/// The beginning of each stream, for files that hold several.
const BEGINS: &[u8] = br#"{"type":"message_start""#;

/// Services whose responses have no end marker, so that a truncated response may be complete.
const UNMARKED: &[&str] = &["gemini/", "gemini-vertex/", "perplexity/"];

/// A place where `expected.json` is wrong.
struct Correction {
    file: &'static str,
    /// JSON pointer into the expectations for the file.
    place: &'static str,
    /// The correct value, as JSON.
    right: &'static str,
    why: &'static str,
}

const CORRECTIONS: &[Correction] = &[
    Correction {
        file: "groq/rig__agent_tool_sessions__parallel_tool_calls_single_turn_streaming.sse",
        place: "/tool_calls/0/args",
        right: "{}",
        why: "The model wrote `null` for a tool without arguments.",
    },
    Correction {
        file: "groq/rig__agent_tool_sessions__parallel_tool_calls_single_turn_streaming.sse",
        place: "/tool_calls/1/args",
        right: "{}",
        why: "The model wrote `null` for a tool without arguments.",
    },
    Correction {
        file: "openai-responses/vercel__openai-reasoning-encrypted-content.1.chunks.txt",
        place: "",
        right: r#"{
            "dialect": "openai_responses",
            "finish_reason": "completed",
            "id": "resp_01830d662ab3856501693c321345c88190b0de00f3b9975691",
            "model": "gpt-5.1-codex-max",
            "text": "",
            "reasoning_text_len": 163,
            "tool_calls": [{"name": "calculator", "args": {"a": 12, "b": 7, "op": "add"}, "ok": true}],
            "usage": {"input_total": 134, "output_total": 28}
        }"#,
        why: "The file holds four answers one after the other, and a stream ends with its first.",
    },
    Correction {
        file: "openai-responses/pydantic__test_openai_responses__test_openai_responses_model_mcp_list_tools_stream_backfills_missing_results.sse",
        place: "/extra/other_items",
        right: r#"["mcp_list_tools", "mcp_list_tools", "mcp_list_tools"]"#,
        why: "Two of the items are complete in the whole answer only.",
    },
    Correction {
        file: "openai-responses/vercel__openai-shell-container.1.chunks.txt",
        place: "/text",
        right: r#""The command ran successfully.""#,
        why: "The item says something else than its pieces, which were handed out by then.",
    },
    Correction {
        file: "xai/vercel__resp-xai-x-search-tool.chunks.txt",
        place: "/tool_calls",
        right: "[]",
        why: "The service ran these tools itself: they are its items.",
    },
    Correction {
        file: "xai/vercel__resp-xai-x-search-tool.chunks.txt",
        place: "/extra/other_items",
        right: r#"["custom_tool_call", "custom_tool_call", "web_search_call", "web_search_call", "web_search_call", "web_search_call"]"#,
        why: "The service ran these tools itself: they are its items.",
    },
];

/// A recorded response.
#[derive(Debug)]
struct Recording {
    /// Path of the file, including the folder of its service.
    file: String,
    body: Vec<u8>,
    expected: Value,
}

/// Assembles the chunks of a complete response into one message.
pub(super) fn assembled(chunks: &[Chunk]) -> AssembledResponse {
    let mut assembly = Assembly::new(MessageId::new("m"), BTreeSet::new(), 4 << 20);
    for (made, chunk) in chunks.iter().enumerate() {
        let progress = assembly.apply(chunk.clone(), || CallId::new(format!("made_{made}")));
        match progress.expect("a sound answer") {
            Progress::Finished(finish) => return assembly.finish(finish),
            Progress::NoDelta | Progress::Delta(_) => {}
        }
    }
    panic!("no end: {chunks:?}")
}

/// Checks every recording of a dialect against its expectations. `decoder` returns a new decoder
/// for a file. Returns the number of recordings.
pub(super) fn check_whole<D: Decoder>(dialect: &str, decoder: impl Fn(&str) -> D) -> usize {
    let recordings = recordings(dialect);
    for Recording { file, body, expected } in &recordings {
        let (chunks, result) = decode(decoder(file), [body.as_slice()]);
        if let Some(error) = expected["errors"].get(0) {
            let fault = result.expect_err(file);
            let words = [fault.message.as_str(), fault.code.as_str()];
            assert_eq!(words, [text(error, "message"), text(error, "code")], "{file}");
            continue;
        }
        assert_eq!(result, Ok(()), "{file}");
        let answer = assembled(&chunks);
        check_words(file, &answer.parts, expected);
        check_calls(file, &answer, expected);
        check_items(file, &answer.parts, expected);
        check_finish(file, &answer, expected);
        check_usage(file, &answer.finish, expected);
    }
    recordings.len()
}

/// The recordings of a dialect that decode without an error: file, body and response.
pub(super) fn answers<D: Decoder>(
    dialect: &str,
    decoder: impl Fn(&str) -> D,
) -> Vec<(String, Vec<u8>, AssembledResponse)> {
    let mut answers = Vec::new();
    for Recording { file, body, .. } in recordings(dialect) {
        let (chunks, result) = decode(decoder(&file), [body.as_slice()]);
        if result.is_ok() {
            answers.push((file, body, assembled(&chunks)));
        }
    }
    answers
}

/// Checks that the split of the bytes does not matter: at every position in small recordings, at
/// random positions in all. Returns the number of small recordings.
pub(super) fn check_splits<D: Decoder>(dialect: &str, decoder: impl Fn(&str) -> D) -> usize {
    let mut small = 0;
    for (number, Recording { file, body, .. }) in (1..).zip(recordings(dialect)) {
        let whole = decode(decoder(&file), [body.as_slice()]);
        for round in 0..ROUNDS {
            let pieces = pieces(&body, number * ROUNDS + round);
            let split = decode(decoder(&file), pieces);
            assert_eq!(split, whole, "{file}, {number}, round {round}");
        }
        if body.len() <= SMALL {
            // A decoder sees only events, so equal events give an equal response.
            let whole = events([body.as_slice()]);
            for cut in 0..=body.len() {
                let events = events([&body[..cut], &body[cut..]]);
                assert_eq!(events, whole, "{file} cut at {cut}");
            }
            small += 1;
        }
    }
    small
}

/// Checks that a truncated recording is not taken for a complete one: it fails, unless it decodes
/// like the whole. Only what follows the finish reason, which is the usage, may be missing.
pub(super) fn check_truncated<D: Decoder>(dialect: &str, decoder: impl Fn(&str) -> D) {
    for Recording { file, body, .. } in recordings(dialect) {
        if body.len() > SMALL || UNMARKED.iter().any(|service| file.starts_with(service)) {
            continue;
        }
        let whole = decode(decoder(&file), [body.as_slice()]);
        for cut in (0..body.len()).step_by(7) {
            let outcome = decode(decoder(&file), [&body[..cut]]);
            let broken = |fault: &Fault| fault.kind == Kind::Broken;
            assert!(
                outcome.1.as_ref().is_err_and(broken) || says_the_same(&outcome, &whole),
                "{file} cut off at {cut}: {outcome:?}"
            );
        }
    }
}

/// Whether two responses are complete and differ at most in how they end.
fn says_the_same((one, ended): &DecodeOutcome, (other, _): &DecodeOutcome) -> bool {
    let words = |chunks: &[Chunk]| chunks.split_last().map(|(_, words)| words.to_vec());
    ended.is_ok() && words(one) == words(other)
}

fn recordings(dialect: &str) -> Vec<Recording> {
    let folder = folder();
    let expected = fs::read(folder.join("expected.json")).expect("the expectations");
    let expected: BTreeMap<String, Value> = serde_json::from_slice(&expected).expect("JSON");
    let recordings: Vec<Recording> = expected
        .into_iter()
        .filter(|(_, expected)| expected["dialect"] == dialect)
        .map(|(file, expected)| {
            let bytes = fs::read(folder.join(&file)).expect("a recording");
            let body =
                if file.ends_with(".chunks.txt") { framed(dialect, last_stream(&bytes, &expected)) } else { bytes };
            let expected = corrected(&file, expected);
            Recording { file, body, expected }
        })
        .collect();
    assert!(!recordings.is_empty(), "{dialect}");
    recordings
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/providers")
}

/// Corrects the expectations where `expected.json` is wrong. Asserts that they are still wrong.
fn corrected(file: &str, mut expected: Value) -> Value {
    for wrong in CORRECTIONS.iter().filter(|wrong| wrong.file == file) {
        let Correction { place, why, .. } = wrong;
        let right: Value = serde_json::from_str(wrong.right).expect("JSON");
        let value = expected.pointer_mut(place).expect(why);
        assert_ne!(*value, right, "{file} is right at {place} by now: {why}");
        *value = right;
    }
    expected
}

/// A file may hold the responses to several calls; the expectations are for the last one.
fn last_stream<'a>(lines: &'a [u8], expected: &Value) -> &'a [u8] {
    if expected["extra"]["concatenated_streams"].is_null() {
        return lines;
    }
    let mut begins = lines.windows(BEGINS.len()).enumerate().filter(|(_, window)| *window == BEGINS);
    begins.next_back().map_or(lines, |(at, _)| &lines[at..])
}

/// Frames payloads, one per line, as a stream.
fn framed(dialect: &str, lines: &[u8]) -> Vec<u8> {
    let lines = String::from_utf8_lossy(lines);
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    let mut body = String::new();
    for line in lines {
        if dialect != "openai_chat" && dialect != "gemini" {
            let payload: Value = serde_json::from_str(line).expect("JSON");
            body.push_str(&format!("event: {}\n", text(&payload, "type")));
        }
        body.push_str(&format!("data: {line}\n\n"));
    }
    if dialect == "openai_chat" {
        body.push_str("data: [DONE]\n\n");
    }
    body.into_bytes()
}

/// Splits the bytes into pieces of random sizes. Deterministic for a seed.
fn pieces(bytes: &[u8], seed: u64) -> Vec<&[u8]> {
    let mut random = Random::new(seed);
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let longest = 1 + random.below(MAX_PIECE);
        let length = random.below(longest) + 1;
        let (piece, after) = rest.split_at(length.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// A SplitMix64 random number generator. Deterministic for a seed.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random number less than `most`, which must not be 0.
    pub(super) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let below = (mixed ^ (mixed >> 31)) % most as u64;
        usize::try_from(below).expect("below a usize")
    }
}

/// The events of a stream that arrives in these pieces.
pub(super) fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<sse::Event> {
    let mut reader = sse::Reader::default();
    let mut events = Vec::new();
    for piece in pieces {
        reader.push(piece, &mut events).expect("small events");
    }
    events.extend(reader.finish());
    events
}

/// The text, reasoning and refusal of a response.
#[derive(Debug, Default)]
struct Words {
    text: String,
    reasoning: String,
    refusal: String,
}

impl Words {
    fn of(parts: &[Part]) -> Self {
        let mut words = Self::default();
        for part in parts {
            match &part.content {
                Content::Text(text) => words.text.push_str(text),
                Content::Reasoning { text, .. } => words.reasoning.push_str(text),
                Content::Refusal(text) => words.refusal.push_str(text),
                Content::ToolCall(_)
                | Content::ToolResult(_)
                | Content::Media(_)
                | Content::ProviderItem(_)
                | Content::Unknown(_) => {}
            }
        }
        words
    }
}

fn check_words(file: &str, parts: &[Part], expected: &Value) {
    let words = Words::of(parts);
    assert_eq!(words.text, text(expected, "text"), "{file}");
    assert_eq!(
        words.reasoning.chars().count() as u64,
        expected["reasoning_text_len"].as_u64().unwrap_or_default(),
        "{file}"
    );
    let extra = &expected["extra"];
    let refusal = match text(extra, "refusal") {
        // Messages has only an explanation.
        "" => text(&extra["stop_details"], "explanation"),
        words => words,
    };
    assert_eq!(words.refusal, refusal, "{file}");
}

fn check_calls(file: &str, answer: &AssembledResponse, expected: &Value) {
    let expected = expected["tool_calls"].as_array().expect("a list");
    assert_eq!(answer.calls.len(), expected.len(), "{file}");
    for (call, expected) in answer.calls.iter().zip(expected) {
        assert_eq!(call.name, text(expected, "name"), "{file}");
        if expected["ok"] == true {
            let arguments: Value = serde_json::from_str(&call.arguments).expect(file);
            let written = match &expected["args"] {
                Value::String(text) => serde_json::from_str(text).expect(file),
                written @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                    written.clone()
                }
            };
            assert_eq!(arguments, written, "{file}");
        } else {
            assert_eq!(call.arguments, text(expected, "args"), "{file}");
        }
    }
}

/// Checks the kinds of the provider items, where they are known.
fn check_items(file: &str, parts: &[Part], expected: &Value) {
    let Some(wanted) = expected["extra"]["other_items"].as_array() else {
        return;
    };
    let mut kinds = Vec::new();
    for part in parts {
        if let Content::ProviderItem(item) = &part.content {
            let json: Value = serde_json::from_str(&item.json).expect(file);
            assert_eq!(json["type"], *item.kind, "{file}");
            kinds.push(item.kind.as_str());
        }
    }
    kinds.sort_unstable();
    let mut wanted: Vec<&str> = wanted.iter().filter_map(Value::as_str).collect();
    wanted.sort_unstable();
    assert_eq!(kinds, wanted, "{file}");
}

fn check_finish(file: &str, answer: &AssembledResponse, expected: &Value) {
    let AssembledResponse { parts, calls, pictures: _, finish } = answer;
    let extra = &expected["extra"];
    let said = text(expected, "finish_reason");
    // The reason why a response of the Responses API is incomplete is more specific than its
    // status.
    let detail = extra["incomplete_details"]["reason"].as_str();
    let word = detail.unwrap_or(said);
    let cut_off = text(extra, "native_finish_reason") == "max_output_tokens";
    let refused = !Words::of(parts).refusal.is_empty();
    let reason = match word {
        _ if cut_off => FinishReason::Length,
        "length" | "max_tokens" | "max_output_tokens" | "MAX_TOKENS" => FinishReason::Length,
        "tool_calls" | "tool_use" => FinishReason::ToolCalls,
        "refusal" => FinishReason::Refusal,
        "stop" | "completed" if refused => FinishReason::Refusal,
        "completed" | "STOP" if !calls.is_empty() => FinishReason::ToolCalls,
        "stop" | "completed" | "end_turn" | "stop_sequence" | "STOP" => FinishReason::Stop,
        other => panic!("{file}: {other}"),
    };
    assert_eq!((finish.reason, finish.provider_reason.as_str()), (reason, word), "{file}");
    assert_eq!(finish.response_id, text(expected, "id"), "{file}");
    assert_eq!(finish.provider_model, text(expected, "model"), "{file}");
}

fn check_usage(file: &str, finish: &Finish, expected: &Value) {
    let reported = finish.usage.as_ref().map(|usage| {
        json!({
            "input_total": usage.input,
            "output_total": usage.output,
            "reasoning": usage.reasoning.min(usage.output),
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
        })
    });
    let wanted = expected["usage"].as_object().map(|usage| {
        let field = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or_default();
        json!({
            "input_total": field("input_total"),
            "output_total": field("output_total"),
            "reasoning": field("reasoning"),
            "cache_read": field("cache_read"),
            "cache_write": field("cache_write"),
        })
    });
    assert_eq!(reported, wanted, "{file}");
    if let Some(usage) = &finish.usage {
        let kept: BTreeMap<String, Value> = serde_json::from_str(&usage.provider_json).expect(file);
        assert!(!kept.is_empty(), "{file}");
        for (field, value) in kept {
            if let Some(came) = expected["usage_raw"].get(&field) {
                assert_eq!(value, *came, "{file}: {field}");
            }
        }
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}
