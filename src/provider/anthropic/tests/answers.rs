//! Tests of responses: recorded ones, and cases that the recordings do not cover.

use serde_json::{Value, json};

use super::super::decode::Decoder;
use crate::{
    model::{Content, FinishReason, Part},
    provider::{
        Chunk,
        assemble::AssembledResponse,
        error::Kind,
        recordings::{self, DecodeOutcome, assembled, decode},
    },
};

const DIALECT: &str = "anthropic";

fn decoder(_: &str) -> Decoder {
    Decoder::new(None)
}

/// Serializes events as a stream.
fn stream(events: &[Value]) -> String {
    let event = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        format!("event: {kind}\ndata: {event}\n\n")
    };
    events.iter().map(event).collect()
}

fn outcome(events: &[Value]) -> DecodeOutcome {
    decode(Decoder::new(None), [stream(events).as_bytes()])
}

/// Decodes a whole response from blocks, each given by its start and its deltas.
fn answer(blocks: &[(Value, &[Value])], stop: &Value) -> AssembledResponse {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude", "usage": {"input_tokens": 3, "output_tokens": 1}}}),
    ];
    for (index, (start, deltas)) in blocks.iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(deltas.iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 9}}));
    events.push(json!({"type": "message_stop"}));
    let (chunks, result) = outcome(&events);
    assert_eq!(result, Ok(()));
    assembled(&chunks)
}

fn ends(reason: &str) -> Value {
    json!({"stop_reason": reason})
}

/// A compact form of the parts, with their metadata.
fn shown(parts: &[Part]) -> Vec<String> {
    let show = |part: &Part| {
        let content = match &part.content {
            Content::Text(text) => format!("text {text}"),
            Content::Refusal(text) => format!("refusal {text}"),
            Content::Reasoning { text, redacted } => format!("reasoning {text} {redacted}"),
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
    assert_eq!(recordings::check_whole(DIALECT, decoder), 60);
}

#[test]
fn the_split_of_the_bytes_does_not_matter() {
    assert!(recordings::check_splits(DIALECT, decoder) > 20);
}

#[test]
fn a_truncated_answer_is_an_error() {
    recordings::check_truncated(DIALECT, decoder);
}

#[test]
fn each_block_is_a_part_of_its_own() {
    let text = |text: &str| (json!({"type": "text", "text": ""}), vec![json!({"type": "text_delta", "text": text})]);
    let one = text("One.");
    let two = text("Two.");
    let answer = answer(&[(one.0, &one.1), (two.0, &two.1)], &ends("end_turn"));
    assert_eq!(shown(&answer.parts), ["text One.", "text Two."]);
}

/// Row A1
#[test]
fn reasoning_keeps_its_signature_also_where_its_text_is_hidden() {
    let answer = answer(
        &[
            (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                &[
                    json!({"type": "thinking_delta", "thinking": "Let me "}),
                    json!({"type": "thinking_delta", "thinking": "see."}),
                    json!({"type": "signature_delta", "signature": "abc"}),
                ],
            ),
            (json!({"type": "thinking", "thinking": ""}), &[json!({"type": "signature_delta", "signature": "def"})]),
            (json!({"type": "redacted_thinking", "data": "xyz"}), &[]),
            (json!({"type": "text", "text": "Yes."}), &[]),
        ],
        &ends("end_turn"),
    );
    assert_eq!(
        shown(&answer.parts),
        [
            r#"reasoning Let me see. false{"anthropic":{"signature":"abc"}}"#,
            r#"reasoning  true{"anthropic":{"signature":"def"}}"#,
            r#"reasoning  true{"anthropic":{"redacted_thinking":"xyz"}}"#,
            "text Yes.",
        ]
    );
}

#[test]
fn calls_have_the_arguments_that_came_in_pieces_or_at_once() {
    let call = |id: &str, input: Value| json!({"type": "tool_use", "id": id, "name": "look", "input": input, "caller": {"type": "direct"}});
    let piece = |json: &str| json!({"type": "input_json_delta", "partial_json": json});
    let answer = answer(
        &[
            (call("a", json!({})), &[piece(""), piece("{\"x\":"), piece("1}")]),
            (call("b", json!({})), &[piece("")]),
            (call("c", json!({"y": 2})), &[]),
        ],
        &ends("tool_use"),
    );
    let caller = r#"{"anthropic":{"caller":{"type":"direct"}}}"#;
    assert_eq!(
        shown(&answer.parts),
        [
            format!("call a look {{\"x\":1}}{caller}"),
            format!("call b look {{}}{caller}"),
            format!("call c look {{\"y\":2}}{caller}"),
        ]
    );
    assert_eq!(answer.finish.reason, FinishReason::ToolCalls);
}

#[test]
fn what_only_the_service_can_read_is_kept_whole_and_in_its_place() {
    let answer = answer(
        &[
            (
                json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}),
                &[
                    json!({"type": "input_json_delta", "partial_json": "{\"query\": \"a\\n"}),
                    json!({"type": "input_json_delta", "partial_json": "b\"}"}),
                ],
            ),
            (
                json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"encrypted_content": "E"}]}),
                &[],
            ),
            (
                json!({"type": "compaction", "content": null}),
                &[json!({"type": "compaction_delta", "content": "So far."})],
            ),
            (json!({"type": "text", "text": "Found."}), &[]),
        ],
        &json!({"stop_reason": "pause_turn", "container": {"id": "c1"}}),
    );
    assert_eq!(
        shown(&answer.parts),
        [
            r#"server_tool_use {"id":"s1","input":{"query": "a\nb"},"name":"web_search","type":"server_tool_use"} [web_search: a b]"#,
            r#"web_search_tool_result {"content":[{"encrypted_content":"E"}],"tool_use_id":"s1","type":"web_search_tool_result"} [web_search_tool_result]"#,
            r#"compaction {"content":"So far.","type":"compaction"} [compaction]"#,
            "text Found.",
        ]
    );
    assert_eq!(answer.finish.reason, FinishReason::Paused);
    assert_eq!(answer.finish.metadata.as_deref(), Some(r#"{"anthropic":{"container":{"id":"c1"}}}"#));
}

#[test]
fn citations_belong_to_the_text_that_they_came_with() {
    let cited = json!({"type": "web_search_result_location", "url": "https://example.org", "title": "An example", "cited_text": "It is so.", "encrypted_index": "E"});
    let answer = answer(
        &[(
            json!({"type": "text", "text": "", "citations": []}),
            &[json!({"type": "citations_delta", "citation": cited}), json!({"type": "text_delta", "text": "So."})],
        )],
        &ends("end_turn"),
    );
    let [citation] = &answer.parts[0].citations[..] else { panic!("one citation: {:?}", answer.parts) };
    assert_eq!(
        (citation.url.as_str(), citation.title.as_str(), citation.cited_text.as_str()),
        ("https://example.org", "An example", "It is so.")
    );
    let kept: Value = serde_json::from_str(citation.provider_metadata.as_deref().unwrap()).unwrap();
    assert_eq!(kept, cited);
}

#[test]
fn stop_reasons_are_read_in_one_vocabulary() {
    let table = [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("tool_use", FinishReason::ToolCalls),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("refusal", FinishReason::Refusal),
        ("pause_turn", FinishReason::Paused),
        ("something_new", FinishReason::Stop),
    ];
    for (word, expected) in table {
        let answer = answer(&[(json!({"type": "text", "text": "a"}), &[])], &ends(word));
        assert_eq!((answer.finish.reason, answer.finish.provider_reason.as_str()), (expected, word));
    }
}

#[test]
fn a_refusal_without_a_word_is_explained_in_the_words_of_the_service() {
    let stop = json!({"stop_reason": "refusal", "stop_details": {"explanation": "Blocked."}});
    assert_eq!(shown(&answer(&[], &stop).parts), ["refusal Blocked."]);
}

#[test]
fn errors_within_the_stream_are_classified() {
    let table = [
        ("overloaded_error", Kind::Overloaded),
        ("rate_limit_error", Kind::RateLimited),
        ("authentication_error", Kind::Auth),
        ("api_error", Kind::Overloaded),
    ];
    for (kind, expected) in table {
        let events = [
            json!({"type": "message_start", "message": {}}),
            json!({"type": "error", "error": {"type": kind, "message": "Well."}}),
        ];
        let (_, result) = outcome(&events);
        let fault = result.unwrap_err();
        assert_eq!((fault.kind, fault.message.as_str()), (expected, "Well."), "{kind}");
    }
}

#[test]
fn unknown_events_blocks_and_deltas_are_passed_over() {
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1", "new": 1}}),
        json!({"type": "message_start", "message": {"id": "msg_2"}}),
        json!({"type": "ping"}),
        json!({"type": "news", "index": "x"}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": null}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "news_delta", "news": "x"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi."}}),
        json!({"type": "message_stop"}),
    ];
    let (chunks, result) = outcome(&events);
    assert_eq!(result, Ok(()));
    let answer = assembled(&chunks);
    assert_eq!(shown(&answer.parts), ["text Hi."]);
    assert_eq!(answer.finish.response_id, "msg_2");
}

#[test]
fn fields_of_unknown_events_may_hold_anything() {
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1"}}),
        json!({"type": "news", "message": "Well.", "delta": "x", "error": {"message": "None."}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi."}}),
        json!({"type": "message_stop"}),
    ];
    let (chunks, result) = outcome(&events);
    assert_eq!(result, Ok(()));
    assert_eq!(shown(&assembled(&chunks).parts), ["text Hi."]);
    let (_, result) = outcome(&[
        json!({"type": "message_start", "message": {}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": "lost"}),
    ]);
    assert_eq!(result.unwrap_err().kind, Kind::Broken);
}

#[test]
fn an_error_is_read_however_it_is_written() {
    for data in [
        r#"{"type":"error","message":"Well."}"#,
        r#"{"error":{"message":"Well."}}"#,
        r#"{"type":"error","error":{"type":"api_error","message":"Well."}}"#,
    ] {
        let (_, result) = decode(Decoder::new(None), [format!("data: {data}\n\n").as_bytes()]);
        assert_eq!(result.unwrap_err().message, "Well.", "{data}");
    }
}

#[test]
fn an_answer_that_begins_again_before_anything_was_shown_is_read_anew() {
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 9}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool", "big": "x"}}),
        json!({"type": "message_start", "message": {"id": "msg_2", "usage": {"output_tokens": 3}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi."}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_stop"}),
    ];
    let (chunks, result) = outcome(&events);
    assert_eq!(result, Ok(()));
    let answer = assembled(&chunks);
    assert_eq!(shown(&answer.parts), ["text Hi."]);
    assert_eq!(answer.finish.response_id, "msg_2");
    let usage = answer.finish.usage.expect("usage");
    assert_eq!((usage.input, usage.output), (0, 3));
}

#[test]
fn the_service_tells_what_it_changed_of_the_conversation() {
    let transformed = json!([{"type": "thinking_removed", "message_index": 1}]);
    let edited = json!({"applied_edits": [{"type": "clear_tool_uses_20250919"}]});
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1", "input_transformations": transformed}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi."}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "context_management": edited}),
        json!({"type": "message_stop"}),
    ];
    let (chunks, result) = outcome(&events);
    assert_eq!(result, Ok(()));
    let metadata = assembled(&chunks).finish.metadata.expect("metadata");
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    assert_eq!(metadata, json!({"anthropic": {"input_transformations": transformed, "context_management": edited}}));
}

#[test]
fn results_that_are_too_large_are_not_kept_and_what_was_closed_does_not_count() {
    let fetched = |id: &str, bytes: usize| {
        let data = "x".repeat(bytes);
        let start = json!({"type": "web_fetch_tool_result", "tool_use_id": id, "content": {"data": data}});
        (start, &[] as &[Value])
    };
    let kept = |sizes: &[usize]| {
        let blocks: Vec<_> = sizes.iter().map(|size| fetched("s", *size)).collect();
        let answer = answer(&blocks, &ends("end_turn"));
        let kept = answer.parts.iter().map(|part| match &part.content {
            Content::ProviderItem(item) => !item.json.contains(r#""content":null"#),
            Content::Text(_)
            | Content::Refusal(_)
            | Content::Reasoning { .. }
            | Content::ToolCall(_)
            | Content::ToolResult(_)
            | Content::Media(_)
            | Content::Unknown(_) => false,
        });
        kept.collect::<Vec<_>>()
    };
    assert_eq!(kept(&[200 << 10, 300 << 10, 1 << 10]), [true, false, true]);
    assert_eq!(kept(&[200 << 10; 4]), [true, true, false, false]);
    assert_eq!(kept(&[3 << 20; 4]), [false; 4]);
}

#[test]
fn an_answer_that_begins_again_or_has_no_end_is_broken() {
    let start = json!({"type": "message_start", "message": {"id": "msg_1"}});
    let text = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}});
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}});
    let stop = json!({"type": "message_stop"});
    let table = [vec![start.clone(), text.clone(), start.clone()], vec![start.clone(), text, delta], vec![start, stop]];
    for events in table {
        let (chunks, result) = outcome(&events);
        assert_eq!(result.unwrap_err().kind, Kind::Broken, "{events:?}");
        assert!(!matches!(chunks.last(), Some(Chunk::Finished(_))));
    }
}
