//! Tests of responses: recorded ones, and cases that the recordings do not cover.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::decode::Decoder;
use crate::{
    model::{Content, FinishReason, Part},
    provider::{
        Chunk,
        assemble::AssembledResponse,
        error::Kind,
        http::Fault,
        recordings::{self, DecodeOutcome, assembled, decode},
    },
};

const DIALECT: &str = "gemini";

fn decoder(_: &str) -> Decoder {
    Decoder::default()
}

/// Serializes payloads as a stream.
fn stream(payloads: &[Value]) -> String {
    let event = |payload: &Value| format!("data: {payload}\r\n\r\n");
    payloads.iter().map(event).collect()
}

fn outcome(payloads: &[Value]) -> DecodeOutcome {
    decode(Decoder::default(), [stream(payloads).as_bytes()])
}

fn fault(payloads: &[Value]) -> Fault {
    outcome(payloads).1.expect_err("a fault")
}

/// An event with these parts.
fn event(parts: &[Value]) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}], "modelVersion": "gemini-3", "responseId": "r1"})
}

fn ends(reason: &str) -> Value {
    json!({"candidates": [{"finishReason": reason}], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2}})
}

/// Decodes a whole response from these parts, one per event.
fn answer(parts: &[Value]) -> AssembledResponse {
    let mut payloads: Vec<Value> = parts.iter().map(|part| event(std::slice::from_ref(part))).collect();
    payloads.push(ends("STOP"));
    let (chunks, result) = outcome(&payloads);
    assert_eq!(result, Ok(()));
    assembled(&chunks)
}

/// A compact form of the parts, with their metadata.
fn shown(parts: &[Part]) -> Vec<String> {
    let show = |part: &Part| {
        let content = match &part.content {
            Content::Text(text) => format!("text {text}"),
            Content::Refusal(text) => format!("refusal {text}"),
            Content::Reasoning { text, .. } => format!("reasoning {text}"),
            Content::ToolCall(call) => format!("call {} {} {}", call.id, call.name, call.arguments),
            Content::ProviderItem(item) => format!("{} {} [{}]", item.kind, item.json, item.title),
            Content::ToolResult(_) | Content::Media(_) | Content::Unknown(_) => "never".to_owned(),
        };
        let attached = part.provider_metadata.as_deref().unwrap_or_default();
        format!("{content}{attached}")
    };
    parts.iter().map(show).collect()
}

#[test]
fn recorded_answers_decode_as_expected() {
    assert_eq!(recordings::check_whole(DIALECT, decoder), 45);
}

#[test]
fn the_split_of_the_bytes_does_not_matter() {
    assert!(recordings::check_splits(DIALECT, decoder) > 30);
}

#[test]
fn an_answer_without_a_reason_for_its_end_is_an_error() {
    let said = event(&[json!({"text": "Hello."})]);
    let whole = stream(&[said, ends("STOP")]);
    let reason = whole.find("finishReason").expect("a reason");
    for cut in 0..reason {
        let (_, result) = decode(Decoder::default(), [&whole.as_bytes()[..cut]]);
        let fault = result.expect_err("cut off");
        assert_eq!(fault.kind, Kind::Broken, "cut off at {cut}");
    }
}

#[test]
fn texts_of_one_kind_are_one_part_unless_one_of_them_is_signed() {
    let answer = answer(&[
        json!({"text": "Let me ", "thought": true}),
        json!({"text": "see.", "thought": true}),
        json!({"text": "It "}),
        json!({"text": "is"}),
        json!({"text": " red", "thoughtSignature": "c2ln"}),
        json!({"text": "."}),
        json!({"text": "", "thoughtSignature": "bW9yZQ=="}),
    ]);
    assert_eq!(
        shown(&answer.parts),
        [
            "reasoning Let me see.",
            "text It is",
            r#"text  red{"gemini":{"thoughtSignature":"c2ln"}}"#,
            "text .",
            r#"text {"gemini":{"thoughtSignature":"bW9yZQ=="}}"#,
        ]
    );
}

#[test]
fn calls_keep_their_signatures_and_the_ids_of_the_service() {
    let answer = answer(&[
        json!({"functionCall": {"id": "c1", "name": "look", "args": {"at": 1.50}}, "thoughtSignature": "c2ln"}),
        json!({"functionCall": {"name": "see"}}),
        json!({"text": ""}),
    ]);
    assert_eq!(
        shown(&answer.parts),
        [r#"call c1 look {"at":1.5}{"gemini":{"id":"c1","thoughtSignature":"c2ln"}}"#, "call made_3 see {}",]
    );
    assert_eq!(answer.finish.reason, FinishReason::ToolCalls);
    assert_eq!(answer.finish.provider_reason, "STOP");
}

#[test]
fn a_call_that_does_not_end_is_never_run() {
    let begun = event(&[json!({"functionCall": {"name": "look", "willContinue": true}})]);
    let piece = event(&[
        json!({"functionCall": {"partialArgs": [{"jsonPath": "$.at", "stringValue": "sk"}], "willContinue": true}}),
    ]);
    let (chunks, result) = outcome(&[begun, piece, ends("MAX_TOKENS")]);
    assert_eq!(result, Ok(()));
    let answer = assembled(&chunks);
    assert!(!answer.calls[0].has_object());
    assert_eq!(answer.finish.reason, FinishReason::Length);
}

#[test]
fn a_call_that_cannot_be_read_is_an_error() {
    let table = [
        json!({"functionCall": "look"}),
        json!({"functionCall": {"name": "look", "args": {}, "willContinue": "no"}}),
        json!({"functionCall": {"name": "look", "args": {}}, "thought": "yes"}),
    ];
    for part in table {
        let fault = fault(&[event(std::slice::from_ref(&part)), ends("STOP")]);
        assert_eq!(
            (fault.kind, fault.message.as_str()),
            (Kind::Broken, "the response contains a tool call that cannot be parsed"),
            "{part}"
        );
    }
    let no_call = json!({"functionCall": null, "text": "a", "thought": "yes"});
    let (_, result) = outcome(&[event(&[no_call]), ends("STOP")]);
    assert_eq!(result, Ok(()));
}

#[test]
fn arguments_in_pieces_have_a_bound() {
    let begun = event(&[json!({"functionCall": {"name": "look", "willContinue": true}})]);
    let more = event(&[json!({"functionCall": {
        "partialArgs": [{"jsonPath": "$.a", "stringValue": "x".repeat(1 << 20)}], "willContinue": true}})]);
    let end = event(&[json!({"functionCall": {}})]);
    let answer = |pieces: usize| {
        let mut events = vec![begun.clone()];
        events.extend(std::iter::repeat_n(more.clone(), pieces));
        events.extend([end.clone(), ends("STOP")]);
        events
    };
    assert_eq!(outcome(&answer(7)).1, Ok(()));
    let fault = fault(&answer(9));
    assert_eq!(
        (fault.kind, fault.should_retry, fault.message.as_str()),
        (Kind::Broken, Some(false), "the arguments of a tool call are too large")
    );
}

#[test]
fn a_picture_that_is_too_large_is_left_out_of_its_item() {
    for (bytes, kept) in [(9, true), (1_000_000, false)] {
        let picture =
            json!({"inlineData": {"mimeType": "image/png", "data": "a".repeat(bytes)}, "thoughtSignature": "c2ln"});
        let answer = answer(&[json!({"text": "Here:"}), picture.clone()]);
        let Content::ProviderItem(item) = &answer.parts[1].content else {
            panic!("{answer:?}");
        };
        let json: Value = serde_json::from_str(&item.json).unwrap();
        let without = json!({"inlineData": {"mimeType": "image/png", "data": null}});
        assert_eq!(json, if kept { picture } else { without });
        assert_eq!(item.title, "image/png");
    }
}

#[test]
fn what_the_service_runs_itself_is_kept_as_items() {
    let code =
        json!({"executableCode": {"language": "PYTHON", "code": "print(1)\nprint(2)"}, "thoughtSignature": "c2ln"});
    let result = json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n2\n"}});
    let answer = answer(&[code.clone(), result.clone(), json!({"text": "Done."})]);
    assert_eq!(
        shown(&answer.parts),
        [
            format!("executableCode {code} [print(1)]"),
            format!("codeExecutionResult {result} [1]"),
            "text Done.".to_owned(),
        ]
    );
}

#[test]
fn sources_are_attached_to_the_passage_that_rests_on_them() {
    let grounding = json!({
        "groundingChunks": [{"web": {"uri": "https://a", "title": "A"}}, {"web": {"uri": "https://b"}}],
        "groundingSupports": [
            {"segment": {"endIndex": 4, "text": "69°"}, "groundingChunkIndices": [0, 1]},
            {"segment": {"startIndex": 90, "endIndex": 99, "text": "warm"}, "groundingChunkIndices": [1, 7]},
            {"segment": {"startIndex": 90, "endIndex": 99, "text": "cold"}, "groundingChunkIndices": [0]},
        ],
    });
    let said = event(&[json!({"text": "69°: warm."})]);
    let last = json!({"candidates": [{
        "content": {"parts": [{"text": "", "thoughtSignature": "c2ln"}]},
        "finishReason": "STOP", "groundingMetadata": grounding,
    }]});
    let (chunks, result) = outcome(&[said, last]);
    assert_eq!(result, Ok(()));
    let answer = assembled(&chunks);
    let cited: Vec<_> = answer.parts[0]
        .citations
        .iter()
        .map(|it| (it.url.as_str(), it.title.as_str(), it.start_byte, it.end_byte))
        .collect();
    assert_eq!(
        cited,
        [("https://a", "A", 0, 4), ("https://b", "", 0, 4), ("https://b", "", 6, 10), ("https://a", "A", 0, 0),]
    );
    assert_eq!(answer.parts.len(), 2);
    let attached: Value = serde_json::from_str(&answer.finish.metadata.unwrap()).unwrap();
    assert_eq!(attached, json!({"gemini": {"groundingMetadata": grounding}}));
}

#[test]
fn sources_without_a_text_are_only_attached_to_the_answer() {
    let call = event(&[json!({"text": "I look."}), json!({"functionCall": {"name": "look"}})]);
    let grounding = json!({"groundingChunks": [{"web": {}}], "groundingSupports": [{"segment": {"endIndex": 1, "text": "I"}, "groundingChunkIndices": [0]}]});
    let last = json!({"candidates": [{"finishReason": "STOP", "groundingMetadata": grounding}]});
    let (chunks, result) = outcome(&[call, last]);
    assert_eq!(result, Ok(()));
    let answer = assembled(&chunks);
    assert!(answer.parts.iter().all(|part| part.citations.is_empty()));
    assert!(answer.finish.metadata.is_some());
}

#[test]
fn every_reason_for_the_end_has_its_meaning() {
    let said = event(&[json!({"text": "a"})]);
    let table = [
        ("STOP", FinishReason::Stop),
        ("stop", FinishReason::Stop),
        ("OTHER", FinishReason::Stop),
        ("SOMETHING_NEW", FinishReason::Stop),
        ("MAX_TOKENS", FinishReason::Length),
        ("SAFETY", FinishReason::ContentFilter),
        ("Recitation", FinishReason::ContentFilter),
        ("IMAGE_SAFETY", FinishReason::ContentFilter),
    ];
    for (word, reason) in table {
        let (chunks, _) = outcome(&[said.clone(), ends(word)]);
        let finish = assembled(&chunks).finish;
        assert_eq!((finish.reason, finish.provider_reason.as_str()), (reason, word));
    }
    for (word, kind) in [
        ("MALFORMED_FUNCTION_CALL", Kind::Broken),
        ("UNEXPECTED_TOOL_CALL", Kind::Broken),
        ("MISSING_THOUGHT_SIGNATURE", Kind::BadRequest),
    ] {
        let fault = fault(&[said.clone(), ends(word)]);
        assert_eq!((fault.kind, fault.code.as_str()), (kind, word));
        assert_eq!(fault.should_retry, None);
    }
}

#[test]
fn a_reason_that_is_not_specified_is_none() {
    let said = event(&[json!({"text": "a"})]);
    let none = ends("FINISH_REASON_UNSPECIFIED");
    let fault = fault(&[said.clone(), none.clone()]);
    assert_eq!(fault.message, "the response ended without a finish reason");
    let (chunks, result) = outcome(&[said, ends("MAX_TOKENS"), none]);
    assert_eq!(result, Ok(()));
    assert_eq!(assembled(&chunks).finish.reason, FinishReason::Length);
}

#[test]
fn an_answer_that_thought_up_to_its_limit_may_be_without_a_word() {
    let (chunks, result) = outcome(&[ends("MAX_TOKENS")]);
    assert_eq!(result, Ok(()));
    let answer = assembled(&chunks);
    assert!(answer.parts.is_empty() && answer.finish.reason == FinishReason::Length);
    assert_eq!(fault(&[ends("STOP")]).kind, Kind::Broken);
}

#[test]
fn a_blocked_prompt_is_an_answer_that_a_filter_held_back() {
    let (chunks, result) = outcome(&[
        json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 5}, "modelVersion": "gemini-3"}),
    ]);
    assert_eq!(result, Ok(()));
    let finish = assembled(&chunks).finish;
    assert_eq!(finish.reason, FinishReason::ContentFilter);
    assert_eq!(finish.provider_reason, "PROHIBITED_CONTENT");
    assert_eq!(finish.usage.unwrap().input, 5);
}

#[test]
fn errors_within_a_stream_are_told_by_their_codes() {
    let error = |code: u16, status: &str| json!({"error": {"code": code, "message": "It is so.", "status": status}});
    let table = [
        (error(503, "UNAVAILABLE"), Kind::Overloaded),
        (error(429, "RESOURCE_EXHAUSTED"), Kind::RateLimited),
        (error(400, "INVALID_ARGUMENT"), Kind::BadRequest),
        (error(403, "PERMISSION_DENIED"), Kind::Auth),
        (json!([error(504, "DEADLINE_EXCEEDED")]), Kind::Timeout),
    ];
    for (body, kind) in table {
        let said = event(&[json!({"text": "a"})]);
        let fault = fault(&[said, body.clone()]);
        assert_eq!((fault.kind, fault.message.as_str()), (kind, "It is so."), "{body}");
    }
}

#[test]
fn only_the_first_of_several_answers_is_read() {
    let both = json!({"candidates": [
        {"content": {"parts": [{"text": "One."}]}, "finishReason": "STOP"},
        {"content": {"parts": [{"text": "Two."}]}, "finishReason": "SAFETY", "index": 1},
    ]});
    let (chunks, _) = outcome(&[both]);
    let answer = assembled(&chunks);
    assert_eq!(shown(&answer.parts), ["text One."]);
    assert_eq!(answer.finish.reason, FinishReason::Stop);
}

#[test]
fn half_of_a_character_is_joined_with_its_other_half() {
    let half = |escaped: &str| {
        format!("data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{escaped}\"}}]}}}}]}}\n\n")
    };
    let end = stream(&[ends("STOP")]);
    let body = [half("a\\ud83d"), half("\\ude00b"), end].concat();
    let (chunks, result) = decode(Decoder::default(), [body.as_bytes()]);
    assert_eq!(result, Ok(()));
    assert_eq!(shown(&assembled(&chunks).parts), ["text a😀b"]);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_what_is_complete_can_be_assembled(
        noise in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..20),
                Just(stream(&[event(&[json!({"text": "a"})])]).into_bytes()),
                Just(stream(&[event(&[json!({"text": "a", "thought": true, "thoughtSignature": "s"})])]).into_bytes()),
                Just(stream(&[event(&[json!({"text": "", "thoughtSignature": "s"}), json!({"thoughtSignature": 1})])]).into_bytes()),
                Just(stream(&[event(&[json!({"functionCall": {"name": "n", "willContinue": true}})])]).into_bytes()),
                Just(stream(&[event(&[json!({"functionCall": {"partialArgs": [{"jsonPath": "$.a[0].b", "stringValue": "x"}]}})])]).into_bytes()),
                Just(stream(&[event(&[json!({"text": 1}), json!(null), json!([]), json!({"new": {}})])]).into_bytes()),
                Just(stream(&[json!({"candidates": [{"groundingMetadata": {"groundingChunks": [{}], "groundingSupports": [{"groundingChunkIndices": [0]}]}}]})]).into_bytes()),
                Just(stream(&[json!({"promptFeedback": {"blockReason": "OTHER"}, "candidates": null})]).into_bytes()),
                Just(stream(&[ends("STOP")]).into_bytes()),
                Just(b"\n\n".to_vec()),
            ],
            0..12,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = noise.concat();
        let cut = cut.index(bytes.len() + 1);
        let whole = decode(Decoder::default(), [bytes.as_slice()]);
        let split = decode(Decoder::default(), [&bytes[..cut], &bytes[cut..]]);
        prop_assert_eq!(&split, &whole);
        if matches!(whole.0.last(), Some(Chunk::Finished(_))) {
            assembled(&whole.0);
        }
    }
}
