//! Every recorded body gives what `expected.json` says, at every split too.

use std::collections::BTreeMap;

use super::*;
use crate::model::Content;

/// All recordings: file, dialect, body, expectation.
fn recordings() -> Vec<(String, &'static str, Vec<u8>, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/providers");
    let expected = fs::read(root.join("expected.json")).expect("the expectations");
    let expected: BTreeMap<String, Value> = serde_json::from_slice(&expected).expect("JSON");
    let read = |(file, expected): (String, Value)| {
        let bytes = fs::read(root.join(&file)).expect("a recording");
        let body = if file.ends_with(".chunks.txt") {
            framed(&bytes)
        } else {
            bytes
        };
        let dialect = dialect_of(&file);
        (file, dialect, body, expected)
    };
    expected.into_iter().map(read).collect()
}

/// Payloads line by line as a stream.
fn framed(lines: &[u8]) -> Vec<u8> {
    let lines = String::from_utf8_lossy(lines).into_owned();
    let events = lines
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| format!("data: {line}\n\n"));
    events
        .chain(["data: [DONE]\n\n".to_owned()])
        .collect::<String>()
        .into_bytes()
}

fn dialect_of(file: &str) -> &'static str {
    match file.split('/').next().unwrap_or_default() {
        "openai-chat" => "openai",
        "openai-compatible" => "xai",
        folder => dialect::named(folder).map_or("compatible", |dialect| dialect.name),
    }
}

fn number(value: &Value) -> u32 {
    value
        .as_u64()
        .and_then(|number| u32::try_from(number).ok())
        .unwrap_or_default()
}

fn texts(parts: &[Part], pick: fn(&Content) -> Option<&str>) -> String {
    parts
        .iter()
        .filter_map(|part| pick(&part.content))
        .collect()
}

#[test]
fn every_recorded_answer_is_decoded_as_expected() {
    let mut seen = 0;
    for (file, dialect, body, expected) in recordings() {
        let (chunks, result) = decode(dialect, [body.as_slice()]);
        if let Some(error) = expected["errors"].get(0) {
            let fault = result.expect_err(&file);
            assert_eq!(
                (fault.message.as_str(), fault.code.as_str()),
                (
                    error["message"].as_str().unwrap(),
                    error["code"].as_str().unwrap()
                ),
                "{file}"
            );
            seen += 1;
            continue;
        }
        assert_eq!(result, Ok(()), "{file}");
        let answer = assembled(&chunks);
        let said = texts(&answer.parts, |content| match content {
            Content::Text(text) => Some(text),
            Content::Reasoning { .. }
            | Content::ToolCall(_)
            | Content::ToolResult(_)
            | Content::Refusal(_)
            | Content::Media(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => None,
        });
        let thought = texts(&answer.parts, |content| match content {
            Content::Reasoning { text, .. } => Some(text),
            Content::Text(_)
            | Content::ToolCall(_)
            | Content::ToolResult(_)
            | Content::Refusal(_)
            | Content::Media(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => None,
        });
        let refused = texts(&answer.parts, |content| match content {
            Content::Refusal(text) => Some(text),
            Content::Text(_)
            | Content::Reasoning { .. }
            | Content::ToolCall(_)
            | Content::ToolResult(_)
            | Content::Media(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => None,
        });
        assert_eq!(said, expected["text"].as_str().unwrap(), "{file}");
        assert_eq!(
            thought.chars().count(),
            expected["reasoning_text_len"].as_u64().unwrap() as usize,
            "{file}"
        );
        assert_eq!(
            refused,
            expected["extra"]["refusal"].as_str().unwrap_or_default(),
            "{file}"
        );
        calls(&file, &answer, &expected);
        ending(&file, &answer.finish, &refused, &expected);
        seen += 1;
    }
    assert_eq!(seen, 109);
}

fn calls(file: &str, answer: &Assembled, expected: &Value) {
    let expected = expected["tool_calls"].as_array().unwrap();
    assert_eq!(answer.calls.len(), expected.len(), "{file}");
    for (call, expected) in answer.calls.iter().zip(expected) {
        assert_eq!(call.name, expected["name"].as_str().unwrap(), "{file}");
        let arguments = serde_json::from_str::<Value>(&call.arguments);
        if expected["ok"].as_bool().unwrap() {
            let written = &expected["args"];
            let written = written.as_str().map_or_else(
                || written.clone(),
                |text| serde_json::from_str(text).unwrap(),
            );
            // No arguments, in the words of a model that should have written an empty object.
            let written = if written.is_null() {
                serde_json::json!({})
            } else {
                written
            };
            assert_eq!(arguments.unwrap(), written, "{file}");
        } else {
            assert_eq!(call.arguments, expected["args"].as_str().unwrap(), "{file}");
        }
    }
}

fn ending(file: &str, finish: &Finish, refused: &str, expected: &Value) {
    let word = expected["finish_reason"].as_str().unwrap();
    let native = expected["extra"]["native_finish_reason"]
        .as_str()
        .unwrap_or_default();
    let reason = match word {
        "length" => FinishReason::Length,
        _ if native == "max_output_tokens" => FinishReason::Length,
        "tool_calls" => FinishReason::ToolCalls,
        "stop" if !refused.is_empty() => FinishReason::Refusal,
        "stop" => FinishReason::Stop,
        other => panic!("{file}: {other}"),
    };
    assert_eq!(
        (finish.reason, finish.provider_reason.as_str()),
        (reason, word),
        "{file}"
    );
    assert_eq!(
        finish.response_id,
        expected["id"].as_str().unwrap_or_default(),
        "{file}"
    );
    assert_eq!(
        finish.provider_model,
        expected["model"].as_str().unwrap_or_default(),
        "{file}"
    );
    let usage = &expected["usage"];
    let reported = finish.usage.as_ref().map(|usage| {
        [
            usage.input,
            usage.output,
            usage.reasoning.min(usage.output),
            usage.cache_read,
            usage.cache_write,
        ]
    });
    let fields = [
        "input_total",
        "output_total",
        "reasoning",
        "cache_read",
        "cache_write",
    ];
    assert_eq!(
        reported,
        usage
            .is_object()
            .then(|| fields.map(|field| number(&usage[field]))),
        "{file}"
    );
    if let Some(usage) = &finish.usage {
        let raw: Value = serde_json::from_str(&usage.provider_json).unwrap();
        assert_eq!(
            raw["prompt_tokens"], expected["usage_raw"]["prompt_tokens"],
            "{file}"
        );
    }
}

#[test]
fn a_recorded_answer_decodes_equally_under_any_chunking() {
    let mut read = 0;
    for (file, dialect, body, _) in recordings() {
        let whole = decode(dialect, [body.as_slice()]);
        assert_eq!(
            decode(dialect, body.chunks(1)),
            whole,
            "{file} byte by byte"
        );
        if body.len() <= SMALL {
            // The decoder sees events only, so the same events give the same answer.
            let events = events([body.as_slice()]);
            for cut in 0..=body.len() {
                assert_eq!(
                    self::events([&body[..cut], &body[cut..]]),
                    events,
                    "{file} cut at {cut}"
                );
            }
            read += 1;
        }
    }
    assert!(read > 50, "{read} small recordings");
}

fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<sse::Event> {
    let mut reader = sse::Reader::default();
    let mut events = Vec::new();
    for piece in pieces {
        reader.push(piece, &mut events).expect("small events");
    }
    events.extend(reader.finish());
    events
}

#[test]
fn a_truncated_recorded_answer_is_never_complete() {
    for (file, dialect, body, expected) in recordings()
        .into_iter()
        .filter(|(.., body, _)| body.len() <= SMALL)
    {
        if dialect == "perplexity" || expected["errors"].is_array() {
            continue;
        }
        let done = body
            .windows(6)
            .rposition(|window| window == b"[DONE]")
            .expect("a marker");
        for cut in (0..done + 5).step_by(7) {
            let (_, result) = decode(dialect, [&body[..cut]]);
            assert_eq!(
                result.expect_err(&file).kind,
                Kind::Broken,
                "{file} cut off at {cut}"
            );
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_decode_equally_under_any_chunking(
        noise in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..20),
                Just(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n".to_vec()),
                Just(b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"n\",\"arguments\":\"{\"}}]}}]}\n\n".to_vec()),
                Just(b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":{\"a\":1}}}]},\"finish_reason\":\"stop\"}]}\n\n".to_vec()),
                Just(b"data: {\"choices\":[{\"delta\":{\"reasoning_details\":[{\"type\":\"t\",\"index\":0}]}}]}\n\n".to_vec()),
                Just(b"data: {\"usage\":{\"prompt_tokens\":1e99}}\n\n".to_vec()),
                Just(br#"data: {"choices":[{"delta":{"content":"\ud83d","reasoning":"\udc00"}}]}"#.to_vec()),
                Just(br#"data: {"choices":[{"delta":{"tool_calls":[{"index":"0","id":1,"function":{"name":"n","arguments":"\ud83d"}}]}}]}"#.to_vec()),
                Just(br#"data: {"choices":[{"delta":{"function_call":{"name":"n"},"reasoning_details":[{"text":"\ud83d"}]}}]}"#.to_vec()),
                Just(b"\n\n".to_vec()),
                Just(b"data: [DONE]\r\n\r\n".to_vec()),
            ],
            0..12,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = noise.concat();
        let cut = cut.index(bytes.len() + 1);
        let whole = decode("openrouter", [bytes.as_slice()]);
        prop_assert_eq!(decode("openrouter", [&bytes[..cut], &bytes[cut..]]), whole);
    }
}
