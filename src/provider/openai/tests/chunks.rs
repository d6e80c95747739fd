//! Tests of what services omit, repeat or add, with one small stream each.

use serde_json::json;

use super::*;

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

fn ends(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(index: u32, id: &str, name: &str) -> Chunk {
    Chunk::ToolCall { index, id: id.to_owned(), name: name.to_owned() }
}

fn input(index: u32, json: &str) -> Chunk {
    Chunk::ToolInput { index, json: json.to_owned() }
}

/// The chunks for fragments of calls, without the end.
fn fragments(fragments: &[Value]) -> Vec<Chunk> {
    let mut payloads: Vec<Value> = fragments.iter().map(|fragment| delta(json!({"tool_calls": [fragment]}))).collect();
    payloads.push(ends("tool_calls"));
    let mut seen = chunks("compatible", &payloads);
    seen.pop();
    seen
}

#[test]
fn tool_call_fragments_are_matched_whatever_fields_are_missing() {
    let whole = [call(0, "a", "look"), input(0, "{}")];
    let table = [
        // As documented.
        (
            vec![
                json!({"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": ""}}),
                json!({"index": 0, "function": {"arguments": "{"}}),
                json!({"index": 0, "function": {"arguments": "}"}}),
            ],
            vec![call(0, "a", "look"), input(0, "{"), input(0, "}")],
        ),
        // The whole call at once, with and without a number.
        (vec![json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}})], whole.to_vec()),
        (vec![json!({"id": "a", "function": {"name": "look", "arguments": "{}"}})], whole.to_vec()),
        // A later empty or null id and name.
        (
            vec![
                json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": "{"}}),
                json!({"index": 0, "id": "", "function": {"name": "", "arguments": "}"}}),
                json!({"index": 0, "id": null, "function": {"name": null, "arguments": null}}),
            ],
            vec![call(0, "a", "look"), input(0, "{"), input(0, "}")],
        ),
        // No number: fragments continue the last call.
        (
            vec![
                json!({"id": "a", "function": {"name": "look", "arguments": "{"}}),
                json!({"function": {"arguments": "}"}}),
                json!({"id": "b", "function": {"name": "look", "arguments": "{}"}}),
            ],
            vec![call(0, "a", "look"), input(0, "{"), input(0, "}"), call(1, "b", "look"), input(1, "{}")],
        ),
        // No number and no id: every name starts a call.
        (
            vec![
                json!({"function": {"name": "look", "arguments": "{}"}}),
                json!({"function": {"name": "look", "arguments": "{}"}}),
            ],
            vec![call(0, "", "look"), input(0, "{}"), call(1, "", "look"), input(1, "{}")],
        ),
        // The same number for every call.
        (
            vec![
                json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}}),
                json!({"index": 0, "id": "b", "function": {"name": "fly", "arguments": "{}"}}),
            ],
            vec![call(0, "a", "look"), input(0, "{}"), call(1, "b", "fly"), input(1, "{}")],
        ),
        // Numbers that do not start at 0, and interleaved fragments of two calls.
        (
            vec![
                json!({"index": 7, "id": "a", "function": {"name": "look", "arguments": "{"}}),
                json!({"index": 3, "id": "b", "function": {"name": "fly", "arguments": "{"}}),
                json!({"index": 7, "function": {"arguments": "}"}}),
                json!({"index": 3, "function": {"arguments": "}"}}),
            ],
            vec![call(0, "a", "look"), input(0, "{"), call(1, "b", "fly"), input(1, "{"), input(0, "}"), input(1, "}")],
        ),
        // The name after the start of the arguments.
        (
            vec![
                json!({"index": 0, "id": "a", "function": {"arguments": "{"}}),
                json!({"index": 0, "function": {"name": "look", "arguments": "}"}}),
            ],
            vec![call(0, "a", "look"), input(0, "{"), input(0, "}")],
        ),
        // The arguments as an object.
        (
            vec![json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": {"n": 1}}})],
            vec![call(0, "a", "look"), input(0, "{\"n\":1}")],
        ),
        (vec![json!({"index": 0, "id": "a", "function": {"name": "look"}})], vec![call(0, "a", "look")]),
        (
            vec![
                json!({"index": 0, "id": "a", "function": {"name": "look"}}),
                json!({"index": 1, "id": "b", "function": {"name": "fly", "arguments": "{}"}}),
            ],
            vec![call(0, "a", "look"), call(1, "b", "fly"), input(1, "{}")],
        ),
    ];
    for (given, expected) in table {
        assert_eq!(fragments(&given), expected, "{given:?}");
    }
}

#[test]
fn tool_call_fragments_are_matched_whatever_the_json_types() {
    let table = [
        // A name in fragments, and a repeated name.
        (
            vec![
                json!({"index": 0, "id": "a", "function": {"name": "lo", "arguments": ""}}),
                json!({"index": 0, "function": {"name": "ok"}}),
                json!({"index": 0, "function": {"name": "look", "arguments": "{"}}),
                json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": "}"}}),
            ],
            vec![call(0, "a", "look"), input(0, "{"), input(0, "}")],
        ),
        // Another name under the same number after arguments.
        (
            vec![
                json!({"index": 0, "function": {"name": "look", "arguments": "{}"}}),
                json!({"index": 0, "function": {"name": "fly", "arguments": "{}"}}),
            ],
            vec![call(0, "", "look"), input(0, "{}"), call(1, "", "fly"), input(1, "{}")],
        ),
        // A number as a string, an id as a number.
        (
            vec![
                json!({"index": "0", "id": 7, "function": {"name": "look", "arguments": "{"}}),
                json!({"index": 0, "function": {"arguments": "}"}}),
            ],
            vec![call(0, "7", "look"), input(0, "{"), input(0, "}")],
        ),
        // No arguments, as models at Groq write it.
        (
            vec![json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": "null"}})],
            vec![call(0, "a", "look")],
        ),
    ];
    for (given, expected) in table {
        assert_eq!(fragments(&given), expected, "{given:?}");
    }
}

#[test]
fn a_tool_call_without_a_name_is_an_error() {
    let nameless = delta(json!({"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": "{}"}}]}));
    let fault = fault("compatible", &stream(&[nameless, ends("tool_calls")]));
    assert_eq!(
        (fault.kind, fault.message.as_str()),
        (Kind::Broken, "the response contains a tool call without a name")
    );
    let piece = delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "x".repeat(40_000)}}]}));
    let fault = self::fault("compatible", &stream(&[piece.clone(), piece]));
    assert_eq!(fault.message, "received the arguments of a tool call without its name");
}

#[test]
fn a_signature_of_a_call_is_attached_to_it() {
    let extra = json!({"google": {"thought_signature": "s"}});
    let signed =
        json!({"index": 0, "id": "a", "extra_content": extra, "function": {"name": "look", "arguments": "{}"}});
    let attached = json!({"openai": {"extra_content": extra}}).to_string();
    assert_eq!(fragments(&[signed]), [call(0, "a", "look"), input(0, "{}"), Chunk::PartMetadata(attached)]);
}

#[test]
fn every_reasoning_field_is_read_as_reasoning() {
    let think = || Chunk::Reasoning("Hm.".to_owned());
    let table = [
        json!({"reasoning_content": "Hm."}),
        json!({"reasoning": "Hm."}),
        json!({"reasoning": "Hm.", "reasoning_content": "Hm."}),
        json!({"reasoning": "Hm.", "reasoning_content": null, "content": ""}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}),
        json!({"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "reference", "reference_ids": [1]}]}),
    ];
    for given in table {
        let seen = chunks("compatible", &[delta(given.clone()), delta(json!({"content": "Yes."})), ends("stop")]);
        assert_eq!(seen[..2], [think(), Chunk::Text("Yes.".to_owned())], "{given}");
    }
}

#[test]
fn details_of_reasoning_are_attached_to_the_reasoning_before_them() {
    let piece = |text: &str| json!({"type": "reasoning.text", "index": 0, "text": text});
    let answer = assembled(&chunks(
        "openrouter",
        &[
            delta(json!({"reasoning": "One ", "reasoning_details": [piece("One ")]})),
            delta(json!({"reasoning": "two.", "reasoning_details": [piece("two.")]})),
            delta(json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "s"}]})),
            delta(json!({"content": "Three."})),
            delta(json!({"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "x"}]})),
            ends("stop"),
        ],
    ));
    let details = |part: &Part| -> Value {
        part.provider_metadata.as_deref().map_or(Value::Null, |json| serde_json::from_str(json).expect("JSON"))
    };
    assert_eq!(answer.parts.len(), 3);
    let whole = json!([{"type": "reasoning.text", "index": 0, "text": "One two.", "signature": "s"}]);
    assert_eq!(details(&answer.parts[0])["openai"]["reasoning_details"], whole);
    assert_eq!(answer.parts[1].provider_metadata, None);
    let hidden = json!([{"type": "reasoning.encrypted", "index": 1, "data": "x"}]);
    assert_eq!(details(&answer.parts[2])["openai"]["reasoning_details"], hidden);
}

#[test]
fn finish_reasons_are_mapped_to_ours() {
    let table = [
        ("stop", None, FinishReason::Stop),
        ("length", None, FinishReason::Length),
        ("model_length", None, FinishReason::Length),
        ("model_context_window_exceeded", None, FinishReason::Length),
        ("tool_calls", None, FinishReason::ToolCalls),
        ("function_call", None, FinishReason::ToolCalls),
        ("content_filter", None, FinishReason::ContentFilter),
        ("something_new", None, FinishReason::Stop),
        ("stop", Some("MAX_TOKENS"), FinishReason::Length),
        ("tool_calls", Some("max_output_tokens"), FinishReason::Length),
        ("tool_calls", Some("completed"), FinishReason::ToolCalls),
        ("content_filter", Some("length"), FinishReason::ContentFilter),
    ];
    for (word, native, expected) in table {
        let end =
            json!({"choices": [{"delta": {"content": "a"}, "finish_reason": word, "native_finish_reason": native}]});
        let seen = chunks("openrouter", &[end]);
        assert_eq!((finish(&seen).reason, finish(&seen).provider_reason.as_str()), (expected, word), "{native:?}");
    }
    let given_up = fault("deepseek", &stream(&[delta(json!({"content": "a"})), ends("insufficient_system_resource")]));
    assert_eq!((given_up.kind, given_up.code.as_str()), (Kind::Overloaded, "insufficient_system_resource"));
    assert_eq!(fault("openrouter", &stream(&[ends("error")])).kind, Kind::Broken);
}

#[test]
fn an_answer_is_complete_with_its_end_marker_or_a_finish_reason() {
    let said = delta(json!({"content": "a"}));
    let no_marker = |payloads: &[Value]| stream(payloads).replace("data: [DONE]\n\n", "");
    assert_eq!(
        finish(&chunks("compatible", std::slice::from_ref(&said))).reason,
        FinishReason::Stop,
        "said something, and is done"
    );
    assert_eq!(fault("compatible", &stream(&[])).message, "the response was empty");
    for name in ["openai", "compatible", "perplexity"] {
        let (closed, result) = decode(name, [no_marker(&[said.clone(), ends("stop")]).as_bytes()]);
        assert_eq!((finish(&closed).reason, result), (FinishReason::Stop, Ok(())), "{name}");
        let fault = fault(name, &no_marker(std::slice::from_ref(&said)));
        assert_eq!((fault.kind, fault.message.as_str()), (Kind::Broken, "the response ended without its end marker"));
    }
    assert_eq!(fault("openai", "").kind, Kind::Broken);
}

#[test]
fn the_last_usage_report_wins() {
    let usage = |prompt: u32| json!({"prompt_tokens": prompt, "completion_tokens": 1});
    let table = [
        vec![json!({"choices": [], "usage": usage(9)})],
        vec![
            json!({"choices": [], "usage": usage(1)}),
            json!({"choices": [], "usage": usage(9)}),
            json!({"choices": [], "usage": null}),
        ],
        vec![json!({"choices": [], "x_groq": {"usage": usage(9)}})],
        vec![json!({"usage": usage(9)}), json!({"choices": [], "usage": {"cost": 1}})],
    ];
    for after in table {
        let payloads = [vec![delta(json!({"content": "a"})), ends("stop")], after].concat();
        let seen = chunks("groq", &payloads);
        assert_eq!(finish(&seen).usage.as_ref().map(|usage| usage.input), Some(9), "{payloads:?}");
    }
    assert_eq!(finish(&chunks("openai", &[ends("stop")])).usage, None);
}

#[test]
fn the_tier_that_served_an_answer_is_kept() {
    let begun = |tier: Value| json!({"choices": [], "service_tier": tier});
    for (tier, expected) in [(json!("flex"), Some(r#"{"openai":{"service_tier":"flex"}}"#)), (Value::Null, None)] {
        let seen = chunks("openai", &[begun(tier), ends("stop")]);
        assert_eq!(finish(&seen).metadata.as_deref(), expected);
    }
}

#[test]
fn only_the_first_of_several_answers_is_read() {
    let two = json!({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}, {"index": 0, "delta": {"content": "yes"}}]});
    let seen = chunks("openai", &[two, ends("stop")]);
    assert_eq!(seen[0], Chunk::Text("yes".to_owned()));
    assert_eq!((seen.len(), finish(&seen).reason), (2, FinishReason::Stop));
}

#[test]
fn an_error_in_the_stream_ends_it_with_what_it_says() {
    let begun = format!("data: {}\n\n", delta(json!({"content": "a"})));
    let table = [
        (
            format!(
                "{begun}event: error\ndata: {{\"error\":{{\"message\":\"No.\",\"code\":\"tool_use_failed\"}}}}\n\n"
            ),
            Kind::Broken,
            "tool_use_failed",
        ),
        (
            format!(
                "{begun}data: {{\"error\":{{\"message\":\"No.\",\"code\":429}},\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"error\"}}]}}\n\n"
            ),
            Kind::RateLimited,
            "429",
        ),
        (
            format!("{begun}data: {{\"error\":{{\"message\":\"No.\",\"type\":\"server_error\"}}}}\n\n"),
            Kind::Overloaded,
            "server_error",
        ),
        (
            format!("{begun}data: {{\"error\":{{\"message\":\"Context size has been exceeded.\"}}}}\n\n"),
            Kind::TooLong,
            "",
        ),
        (
            format!(
                "{begun}data: {{\"error\":{{\"code\":500,\"type\":\"server_error\",\"message\":\"Context size has been exceeded.\"}}}}\n\n"
            ),
            Kind::TooLong,
            "server_error",
        ),
        (format!("{begun}data: {{\"object\":\"error\",\"message\":\"No.\",\"type\":\"t\"}}\n\n"), Kind::Broken, "t"),
        (format!("{begun}data: {{\"error\":\"No.\"}}\n\n"), Kind::Broken, ""),
    ];
    for (body, kind, code) in table {
        let fault = fault("openrouter", &body);
        assert_eq!((fault.kind, fault.code.as_str()), (kind, code), "{body}");
    }
}

#[test]
fn an_undecodable_chunk_is_reported_without_its_content() {
    let table = [
        ("data: {\"choices\": [secret]}\n\n", "an event of the stream cannot be read: it is not JSON, at byte 14"),
        (
            "data: {\"choices\": \"secret\"}\n\n",
            "an event of the stream cannot be read: it has a field of an unexpected type, at byte 19",
        ),
        ("data: {\"choices\": [\n\n", "an event of the stream cannot be read: it is cut off, at byte 13"),
    ];
    for (body, message) in table {
        let fault = fault("openai", body);
        assert_eq!(fault.kind, Kind::Broken);
        assert_eq!(fault.message.split(", at byte").next(), message.split(", at byte").next());
        assert!(!fault.message.contains("secret"), "{}", fault.message);
    }
    let named = format!("event: ping\ndata: still here\n\n{}", stream(&[ends("stop")]));
    assert_eq!(decode("openai", [named.as_bytes()]).1, Ok(()), "a foreign event");
}

#[test]
fn a_legacy_function_call_is_read_unless_tool_calls_repeat_it() {
    let old = |name: Option<&str>, arguments: &str| json!({"name": name, "arguments": arguments});
    let table = [
        vec![json!({"function_call": old(Some("look"), "{")}), json!({"function_call": old(None, "}")})],
        vec![json!({"function_call": old(Some("look"), "{")}), json!({"function_call": old(Some("look"), "}")})],
        vec![json!({"function_call": old(Some("lo"), "")}), json!({"function_call": old(Some("ok"), "{}")})],
    ];
    for deltas in table {
        let payloads: Vec<Value> = deltas.into_iter().map(delta).chain([ends("function_call")]).collect();
        let answer = assembled(&chunks("compatible", &payloads));
        assert_eq!(
            (answer.calls.len(), answer.calls[0].name.as_str(), answer.calls[0].arguments.as_str()),
            (1, "look", "{}")
        );
        assert_eq!(answer.finish.reason, FinishReason::ToolCalls);
    }
    let twice = delta(json!({
        "tool_calls": [{"index": 0, "id": "a", "function": old(Some("look"), "{}")}],
        "function_call": old(Some("look"), "{}"),
    }));
    assert_eq!(assembled(&chunks("compatible", &[twice, ends("tool_calls")])).calls.len(), 1);
}

#[test]
fn a_call_keeps_its_place_before_later_text() {
    let begins = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look"}}]});
    let seen = chunks("compatible", &[delta(begins), delta(json!({"content": "Then."})), ends("tool_calls")]);
    assert_eq!(seen[..2], [call(0, "a", "look"), Chunk::Text("Then.".to_owned())]);
}

#[test]
fn empty_chunks_and_fields_of_other_types_are_skipped() {
    let hello = r#"{"choices":[{"delta":{"content":"Hello"}}]}"#;
    let table = [
        format!("data:\n\ndata: {hello}\n\ndata: \n\n"),
        format!("data: {{\"id\":{{}},\"model\":[1],\"object\":3,\"x_groq\":7,\"choices\":null}}\n\ndata: {hello}\n\n"),
        format!(
            "data: {hello}\n\ndata: {{\"choices\":[{{\"index\":\"0\",\"finish_reason\":0,\"native_finish_reason\":1.5}}]}}\n\n"
        ),
        format!(
            "data: {hello}\n\ndata: {{\"choices\":[{{\"index\":{{}},\"finish_reason\":{{}}}}],\"usage\":\"none\"}}\n\n"
        ),
    ];
    for body in table {
        let (seen, result) = decode("compatible", [format!("{body}data: [DONE]\n\n").as_bytes()]);
        assert_eq!((result, &seen[0], seen.len()), (Ok(()), &Chunk::Text("Hello".to_owned()), 2), "{body}");
    }
}

/// A JSON string literal with every UTF-16 unit escaped.
fn escaped(units: &[u16]) -> String {
    units.iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

proptest! {
    #[test]
    fn text_decodes_equally_wherever_deltas_split_it(
        text in "[a-k😀é\u{10000}]{0,8}",
        field in prop::sample::select(vec!["content", "reasoning", "reasoning_content", "refusal", "arguments"]),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let units: Vec<u16> = text.encode_utf16().collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(units.len() + 1)).chain([0, units.len()]).collect();
        cuts.sort_unstable();
        let mut body = String::new();
        for cut in cuts.windows(2) {
            let piece = escaped(&units[cut[0]..cut[1]]);
            body.push_str(&match field {
                "arguments" => format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"a\",\"function\":{{\"name\":\"look\",\"arguments\":\"{piece}\"}}}}]}}}}]}}\n\n"),
                field => format!("data: {{\"choices\":[{{\"delta\":{{\"{field}\":\"{piece}\"}}}}]}}\n\n"),
            });
        }
        body.push_str("data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
        let (seen, result) = decode("compatible", [body.as_bytes()]);
        prop_assert_eq!(result, Ok(()));
        let whole: String = seen.iter().filter_map(|chunk| match chunk {
            Chunk::Text(text) | Chunk::Reasoning(text) | Chunk::Refusal(text) => Some(text.as_str()),
            Chunk::ToolInput { index: _, json } => Some(json.as_str()),
            Chunk::ToolCall { .. }
            | Chunk::PartEnded
            | Chunk::PartMetadata(_)
            | Chunk::CallMetadata { .. }
            | Chunk::Citation(_)
            | Chunk::Item(_)
            | Chunk::Image(_)
            | Chunk::Sanitized
            | Chunk::Finished(_) => None,
        }).collect();
        prop_assert_eq!(whole, text);
        prop_assert!(!seen.contains(&Chunk::Sanitized));
    }
}
