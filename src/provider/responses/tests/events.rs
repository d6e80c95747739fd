//! Tests of what services send, omit or repeat, with one small stream each.

use super::*;

fn summary(index: u32, text: &str) -> Value {
    delta("reasoning_summary_text", 0, index, text)
}

fn text(output: u32, text: &str) -> Value {
    delta("output_text", output, 0, text)
}

#[test]
fn an_answer_is_made_of_its_events() {
    let events = [
        json!({"type": "response.created", "response": {"id": "resp_0", "model": "gpt"}}),
        added(0, json!({"type": "reasoning", "id": "rs_1", "summary": []})),
        summary(0, "First."),
        summary(1, "Sec"),
        summary(1, "ond."),
        done(0, json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "xyz", "summary": []})),
        added(1, json!({"type": "message", "id": "msg_1", "phase": "commentary", "content": []})),
        text(1, "Hel"),
        text(1, "lo"),
        done(1, message("msg_1", &["Hello"])),
        added(2, json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": ""})),
        json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"n\":"}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "1}"}),
        json!({"type": "response.function_call_arguments.done", "output_index": 2, "arguments": "{\"n\":1}"}),
        done(
            2,
            json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{\"n\":1}"}),
        ),
    ];
    let AssembledResponse { parts, finish, .. } = answer(&events);
    assert_eq!(
        shown(&parts),
        [
            "reasoning First.",
            r#"reasoning Second. {"encrypted_content":"xyz","id":"rs_1"}"#,
            r#"text Hello {"id":"msg_1","phase":"commentary"}"#,
            r#"call call_1 look {"n":1} {"id":"fc_1"}"#,
        ]
    );
    assert_eq!(finish.reason, FinishReason::ToolCalls);
    assert_eq!(finish.response_id, "resp_1", "the last event is right");
}

#[test]
fn words_without_pieces_are_taken_from_what_is_complete() {
    let whole = [
        json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Hello"}),
        done(0, message("", &["Hello", "World"])),
        done(1, json!({"type": "reasoning", "summary": [{"text": "Hm."}], "content": [{"text": "Raw."}]})),
        done(2, json!({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]})),
        done(3, json!({"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"})),
    ];
    let AssembledResponse { parts, .. } = answer(&whole);
    assert_eq!(
        shown(&parts),
        ["text Hello", "text World", "reasoning Hm.", "reasoning Raw.", "refusal No.", "call a look {}"]
    );
}

#[test]
fn an_answer_that_only_its_last_event_holds_is_read_from_it() {
    let output = json!([
        {"type": "reasoning", "id": "rs_1", "encrypted_content": "xyz", "summary": []},
        message("msg_1", &["Hello"]),
    ]);
    let chunks = chunks("openai", &[ended("completed", json!({"output": output}))]);
    assert_eq!(
        shown(&assembled(&chunks).parts),
        [r#"hidden {"encrypted_content":"xyz","id":"rs_1"}"#, r#"text Hello {"id":"msg_1"}"#]
    );
}

#[test]
fn what_the_last_event_repeats_is_not_said_twice() {
    let said = [added(0, message("a", &[])), text(0, "Hello"), done(0, message("b", &["Hello"]))];
    for output in [json!([]), json!([message("b", &["Hello"])]), json!([message("c", &["Hello"])]), json!("none")] {
        let mut events = said.to_vec();
        events.push(ended("completed", json!({"output": output})));
        let answer = assembled(&chunks("openai", &events));
        assert_eq!(shown(&answer.parts), [r#"text Hello {"id":"b"}"#], "{output}");
    }
}

#[test]
fn an_item_that_never_ended_is_completed_by_the_last_event() {
    let events = [
        added(0, json!({"type": "mcp_list_tools", "id": "m1"})),
        added(1, json!({"type": "mcp_list_tools", "id": "m2"})),
        done(1, json!({"type": "mcp_list_tools", "id": "m2", "server_label": "two"})),
        text(2, "Hel"),
        ended(
            "completed",
            json!({"output": [
                {"type": "mcp_list_tools", "id": "m1", "server_label": "one"},
                {"type": "mcp_list_tools", "id": "m2", "server_label": "two"},
                message("m3", &["Hello"]),
            ]}),
        ),
    ];
    let answer = assembled(&chunks("openai", &events));
    assert_eq!(
        shown(&answer.parts),
        [
            "item mcp_list_tools Listed tools: two",
            "text Hel",
            "item mcp_list_tools Listed tools: one",
            r#"text lo {"id":"m3"}"#
        ]
    );
}

#[test]
fn pieces_that_differ_from_the_whole_stay_as_they_were_shown() {
    let events = [text(0, "Hello there."), done(0, message("", &["Hello, World."]))];
    assert_eq!(shown(&answer(&events).parts), ["text Hello there."]);
    let events = [text(0, "Hello"), done(0, message("", &["Hello, World."]))];
    assert_eq!(shown(&answer(&events).parts), ["text Hello, World."]);
}

#[test]
fn numbers_of_contents_that_differ_between_events_repeat_nothing() {
    let events = [
        delta("output_text", 0, 3, "Hello"),
        done(0, message("", &["Hello"])),
        delta("reasoning_text", 1, 7, "Hm."),
        done(1, json!({"type": "reasoning", "content": [{"text": "Hm."}]})),
    ];
    assert_eq!(shown(&answer(&events).parts), ["text Hello", "reasoning Hm."]);
}

#[test]
fn pieces_of_several_items_in_turns_stay_apart() {
    let events =
        [text(0, "a"), text(1, "b"), text(0, "c"), done(0, message("", &["ac"])), done(1, message("", &["b"]))];
    assert_eq!(shown(&answer(&events).parts), ["text a", "text b", "text c"]);
}

#[test]
fn hidden_reasoning_is_kept_for_the_provider() {
    let reasoning = |encrypted: Value| {
        let item = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": encrypted});
        shown(&answer(&[done(0, item), text(1, "Hi")]).parts)
    };
    assert_eq!(reasoning(json!("xyz")), [r#"hidden {"encrypted_content":"xyz","id":"rs_1"}"#, "text Hi"]);
    assert_eq!(reasoning(Value::Null), ["text Hi"]);
}

#[test]
fn ids_after_reasoning_that_does_not_go_back_are_not_kept() {
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "look", "arguments": "{}"});
    let said = json!({"type": "message", "id": "msg_1", "phase": "commentary", "content": [{"text": "Hi"}]});
    let after = |encrypted: Value| {
        let thought = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": encrypted});
        shown(&answer(&[done(0, thought), done(1, said.clone()), done(2, call.clone())]).parts)
    };
    assert_eq!(after(Value::Null), [r#"text Hi {"phase":"commentary"}"#, "call a look {}"]);
    assert_eq!(
        after(json!("xyz"))[1..],
        [r#"text Hi {"id":"msg_1","phase":"commentary"}"#, r#"call a look {} {"id":"fc_1"}"#]
    );
}

#[test]
fn raw_reasoning_beside_its_encrypted_form_is_marked() {
    let events = [
        delta("reasoning_text", 0, 0, "Hm."),
        done(0, json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "xyz"})),
    ];
    assert_eq!(shown(&answer(&events).parts), [r#"reasoning Hm. {"encrypted_content":"xyz","id":"rs_1","raw":true}"#]);
}

#[test]
fn calls_are_numbered_in_order_and_keep_what_the_provider_needs() {
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "look", "arguments": {"n": 1}, "caller": {"type": "program"}});
    let pieces = |output: u32, delta: &str| json!({"type": "response.function_call_arguments.delta", "output_index": output, "delta": delta});
    let events = [
        // Arguments before the name.
        pieces(4, "{"),
        added(7, call("b")),
        pieces(7, "{\"n\":1}"),
        pieces(4, "\"n\":1}"),
        done(4, call("a")),
        done(7, call("b")),
        done(7, call("b")),
    ];
    let AssembledResponse { parts, calls, .. } = answer(&events);
    assert_eq!(
        shown(&parts),
        [
            r#"call b look {"n":1} {"caller":{"type":"program"}}"#,
            r#"call a look {"n":1} {"caller":{"type":"program"}}"#
        ]
    );
    assert_eq!(calls.len(), 2);
}

#[test]
fn a_call_without_a_name_is_an_error() {
    let call = json!({"type": "function_call", "call_id": "a", "arguments": "{}"});
    let pieces = json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{"});
    for events in [vec![done(0, call)], vec![pieces, completed()]] {
        let fault = fault(&events);
        assert_eq!(
            (fault.kind, fault.message.as_str()),
            (Kind::Broken, "the response contains a tool call without a name")
        );
    }
}

#[test]
fn the_input_of_a_custom_call_may_be_large() {
    let begun = json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "a", "name": "patch", "input": ""});
    let piece = "x".repeat(100_000);
    let more = json!({"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": piece});
    let events = |pieces: usize| {
        let mut events = vec![added(0, begun.clone())];
        events.extend(std::iter::repeat_n(more.clone(), pieces));
        events
    };
    let mut whole = events(2);
    let mut call = begun.clone();
    call["input"] = json!(piece.repeat(2));
    whole.push(done(0, call));
    let answer = answer(&whole);
    let arguments: Value = serde_json::from_str(&answer.calls[0].arguments).expect("JSON");
    assert_eq!(arguments["input"].as_str().map(str::len), Some(200_000));
    let fault = fault(&events(90));
    assert_eq!(
        (fault.kind, fault.should_retry, fault.message.as_str()),
        (Kind::Broken, Some(false), "the input of a tool call is too large")
    );
}

#[test]
fn a_custom_call_holds_its_input_as_an_argument() {
    let call = json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "a", "name": "patch", "input": "a \"b\""});
    let events =
        [json!({"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "a "}), done(0, call)];
    assert_eq!(
        shown(&answer(&events).parts),
        [r#"call a patch {"input":"a \"b\""} {"id":"ctc_1","type":"custom_tool_call"}"#]
    );
    assert_eq!(
        shown(&answer_of("xai", &events).parts),
        ["item custom_tool_call Called a tool: patch"],
        "a service that has custom tools of its own runs them"
    );
}

#[test]
fn items_of_hosted_tools_are_kept_as_they_came() {
    let item = r#"{"type":"web_search_call","id":"ws_1","action":{"type":"search","query":"rust\n news"}, "n": 1.50}"#;
    let body =
        format!("data: {{\"type\":\"response.output_item.done\",\"item\":{item}}}\n\n{}", stream(&[completed()]));
    let (chunks, result) = decode("openai", &body);
    assert_eq!(result, Ok(()));
    let Some(Chunk::Item(kept)) = chunks.first() else {
        panic!("{chunks:?}");
    };
    assert_eq!(
        (kept.kind.as_str(), kept.json.as_str(), kept.title.as_str()),
        ("web_search_call", item, "Searched the web: rust news")
    );
}

#[test]
fn a_picture_that_is_too_large_is_left_out_of_its_item() {
    let item = |bytes: usize| json!({"type": "image_generation_call", "id": "ig_1", "result": "a".repeat(bytes)});
    for (bytes, kept) in [(9, true), (300_000, false)] {
        let answer = answer(&[done(0, item(bytes))]);
        let Content::ProviderItem(shown) = &answer.parts[0].content else {
            panic!("{answer:?}");
        };
        let json: Value = serde_json::from_str(&shown.json).expect("JSON");
        assert_eq!(json["result"].is_string(), kept);
        assert_eq!(json["id"], "ig_1");
    }
}

#[test]
fn annotations_are_citations_with_their_place_in_bytes() {
    let url = json!({"type": "url_citation", "url": "https://e.org", "title": "E", "start_index": 2, "end_index": 5});
    let file = json!({"type": "file_citation", "file_id": "file-1", "filename": "a.pdf", "index": 3});
    let bare = json!({"type": "url_citation", "url": "https://f.org"});
    let event = |annotation: &Value| json!({"type": "response.output_text.annotation.added", "output_index": 0, "content_index": 0, "annotation": annotation});
    let whole = json!({"type": "message", "content": [{"type": "output_text", "text": "é [1]!", "annotations": [url, file, bare]}]});
    let cite = |place: (u32, u32), url: &str, title: &str, own: &Value| Citation {
        url: url.to_owned(),
        title: title.to_owned(),
        cited_text: String::new(),
        start_byte: place.0,
        end_byte: place.1,
        provider_metadata: Some(own.to_string()),
    };
    let expected = [
        cite((3, 6), "https://e.org", "E", &url),
        cite((4, 4), "", "a.pdf", &file),
        cite((0, 0), "https://f.org", "", &bare),
    ];
    let said = text(0, "é [1]!");
    for events in [
        vec![said.clone(), event(&url), event(&file), event(&bare), done(0, whole.clone())],
        vec![said, event(&url), done(0, whole.clone())],
        vec![done(0, whole)],
    ] {
        assert_eq!(answer(&events).parts[0].citations, expected, "{events:?}");
    }
}

#[test]
fn an_annotation_of_words_that_were_written_before_others_is_left_out() {
    let event = json!({"type": "response.output_text.annotation.added", "output_index": 0, "content_index": 0, "annotation": {"url": "u"}});
    let events = [text(0, "a"), summary(0, "b"), event];
    let parts = answer(&events).parts;
    assert!(parts.iter().all(|part| part.citations.is_empty()), "{parts:?}");
}

#[test]
fn words_before_and_after_arguments_of_a_call_are_two_parts_with_their_own_annotations() {
    let call = json!({"type": "function_call", "call_id": "a", "name": "look"});
    let event = json!({"type": "response.output_text.annotation.added", "output_index": 1, "content_index": 0, "annotation": {"url": "u", "start_index": 2, "end_index": 4}});
    let arguments = json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{}"});
    let events = [added(0, call), text(1, "ab"), arguments, event.clone(), text(1, "cd"), event];
    let parts = answer(&events).parts;
    assert_eq!(shown(&parts), ["call a look {}", "text ab", "text cd"]);
    let places = |part: &Part| -> Vec<(u32, u32)> {
        let citations = part.citations.iter();
        citations.map(|it| (it.start_byte, it.end_byte)).collect()
    };
    assert_eq!([&parts[1], &parts[2]].map(places), [vec![], vec![(0, 2)]]);
}

#[test]
fn the_end_of_an_answer_tells_why_it_stopped() {
    let refusal = delta("refusal", 0, 0, "No.");
    let incomplete = |reason: &str| json!({"incomplete_details": {"reason": reason}});
    let table = [
        (vec![], "completed", json!({}), FinishReason::Stop, "completed"),
        (vec![refusal], "completed", json!({}), FinishReason::Refusal, "completed"),
        (vec![], "incomplete", incomplete("max_output_tokens"), FinishReason::Length, "max_output_tokens"),
        (vec![], "incomplete", incomplete("content_filter"), FinishReason::ContentFilter, "content_filter"),
        (vec![], "incomplete", incomplete("steered"), FinishReason::Stop, "steered"),
        (vec![], "incomplete", json!({}), FinishReason::Length, "incomplete"),
        (vec![], "completed", json!({"status": null, "error": null}), FinishReason::Stop, "completed"),
    ];
    for (mut events, status, fields, reason, word) in table {
        events.push(ended(status, fields));
        let chunks = chunks("openai", &events);
        let Some(Chunk::Finished(Finish { reason: stopped, provider_reason, .. })) = chunks.last() else {
            panic!("{chunks:?}");
        };
        assert_eq!((*stopped, provider_reason.as_str()), (reason, word), "{events:?}");
    }
}

#[test]
fn a_status_that_says_nothing_is_what_its_event_means() {
    let last = |event: &str, status: Value| json!({"type": format!("response.{event}"), "response": {"id": "resp_1", "status": status}});
    let table = [
        (last("done", Value::Null), FinishReason::Stop, "completed"),
        (last("done", json!("")), FinishReason::Stop, "completed"),
        (last("done", json!("incomplete")), FinishReason::Length, "incomplete"),
        (last("completed", json!("in_progress")), FinishReason::Stop, "completed"),
        (last("incomplete", json!("queued")), FinishReason::Length, "incomplete"),
        (json!({"type": "response.done"}), FinishReason::Stop, "completed"),
    ];
    for (event, reason, word) in table {
        let chunks = chunks("openai", &[text(0, "Hello"), event.clone()]);
        let finish = assembled(&chunks).finish;
        assert_eq!((finish.reason, finish.provider_reason.as_str()), (reason, word), "{event}");
    }
    for event in [last("failed", json!("in_progress")), last("done", json!("cancelled"))] {
        assert_eq!(fault(&[event]).kind, Kind::Broken);
    }
}

#[test]
fn the_tier_of_an_answer_is_kept() {
    let chunks = chunks("openai", &[ended("completed", json!({"service_tier": "flex"}))]);
    let Some(Chunk::Finished(finish)) = chunks.last() else {
        panic!("{chunks:?}");
    };
    assert_eq!(finish.metadata.as_deref(), Some(r#"{"openai-responses":{"service_tier":"flex"}}"#));
}

#[test]
fn errors_of_every_shape_are_classified() {
    let failed = |code: &str| ended("failed", json!({"error": {"code": code, "message": "Sorry."}}));
    let table = [
        (
            json!({"type": "error", "code": "rate_limit_exceeded", "message": "Sorry.", "param": null}),
            Kind::RateLimited,
        ),
        (
            json!({"type": "error", "error": {"type": "tokens", "code": "rate_limit_exceeded", "message": "Sorry."}}),
            Kind::RateLimited,
        ),
        (json!({"error": {"code": "server_error", "message": "Sorry."}}), Kind::Overloaded),
        (failed("server_error"), Kind::Overloaded),
        (failed("context_length_exceeded"), Kind::TooLong),
        (failed("insufficient_quota"), Kind::RateLimited),
        (failed("usage_not_included"), Kind::RateLimited),
        (failed("usage_limit_reached"), Kind::RateLimited),
        (failed("server_is_overloaded"), Kind::Overloaded),
        (failed("invalid_prompt"), Kind::BadRequest),
        (failed("invalid_image_format"), Kind::BadRequest),
        (failed("something_new"), Kind::Broken),
        (ended("failed", json!({})), Kind::Broken),
        (ended("cancelled", json!({})), Kind::Broken),
    ];
    for (event, kind) in table {
        let fault = fault(&[text(0, "Hi"), event.clone()]);
        assert_eq!(fault.kind, kind, "{event}");
    }
    assert_eq!(fault(&[failed("usage_not_included")]).should_retry, Some(false));
}

#[test]
fn an_answer_without_its_last_event_is_an_error() {
    for tail in ["", "data: [DONE]\n\n"] {
        let body = stream(&[text(0, "Hello")]) + tail;
        let fault = decode("openai", &body).1.expect_err("a fault");
        assert_eq!((fault.kind, fault.message.as_str()), (Kind::Broken, "the response ended without its final event"));
    }
    let body = stream(&[text(0, "Hello"), completed()]) + "data: [DONE]\n\n";
    assert_eq!(decode("openrouter", &body).1, Ok(()));
}

#[test]
fn unknown_events_fields_and_items_are_passed_over() {
    let events = [
        json!({"type": "response.brand_new.delta", "output_index": 0, "delta": {"text": 1}}),
        json!({"type": "keepalive"}),
        json!({"other": true}),
        json!({"type": "response.output_item.added"}),
        json!({"type": "response.output_item.done", "output_index": 9}),
        json!({"type": "response.output_text.annotation.added", "annotation": 7}),
        json!({"type": "response.created", "response": "soon"}),
        added(0, json!({"type": "message", "id": 7, "content": "none", "phase": {}})),
        json!({"type": "response.output_text.delta", "output_index": "0", "content_index": null, "delta": "Hi", "logprobs": 7}),
        done(
            0,
            json!({"type": "message", "id": 7, "content": [{"type": "brand_new"}, {"type": "output_text", "text": "Hi", "annotations": null}]}),
        ),
    ];
    assert_eq!(shown(&answer(&events).parts), [r#"text Hi {"id":"7"}"#]);
    let foreign = "event: ping\ndata: nothing\n\ndata:\n\n".to_owned() + &stream(&[completed()]);
    assert_eq!(decode("openai", &foreign).1, Ok(()));
    let broken = "event: response.output_text.delta\ndata: {\"delta\"\n\n";
    let fault = decode("openai", broken).1.expect_err("a fault");
    assert!(fault.message.contains("cut off"), "{}", fault.message);
}

#[test]
fn a_character_that_is_cut_in_two_comes_out_whole() {
    let body = r#"data: {"type":"response.output_text.delta","delta":"a\ud83d"}

data: {"type":"response.output_text.delta","delta":"\ude00b\ud83d"}

data: {"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"a\":\"\ud83d"}

data: {"type":"response.function_call_arguments.delta","output_index":1,"delta":"\ude00\"}"}

data: {"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"a","name":"look"}}

"#;
    let body = body.to_owned() + &stream(&[completed()]);
    let (chunks, result) = decode("openai", &body);
    assert_eq!(result, Ok(()));
    let parts = assembled(&chunks).parts;
    assert_eq!(shown(&parts), ["text a😀b\u{fffd}", r#"call a look {"a":"😀"}"#]);
    assert!(parts[0].sanitized && !parts[1].sanitized);
}

#[test]
fn an_answer_of_endless_items_is_an_error() {
    let events: Vec<Value> = (0..5_000).map(|output| added(output, json!({"type": "message"}))).collect();
    assert_eq!(fault(&events).message, "the response has too many items");
}

fn any_event() -> impl Strategy<Value = Value> {
    let kinds = [
        "output_text.delta",
        "output_text.done",
        "refusal.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_text.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "custom_tool_call_input.delta",
        "output_text.annotation.added",
        "output_item.added",
        "output_item.done",
        "completed",
    ];
    let items = prop::sample::select(vec![
        json!({"type": "message", "id": "m", "phase": "p", "content": [{"text": "aé", "annotations": [{"start_index": 1, "end_index": 2}]}]}),
        json!({"type": "reasoning", "id": "r", "encrypted_content": "x", "summary": [{"text": "a"}]}),
        json!({"type": "reasoning", "content": [{"text": "a"}]}),
        json!({"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}),
        json!({"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "i"}),
        json!({"type": "web_search_call"}),
        json!(7),
    ]);
    let texts = prop::sample::select(vec![json!("a"), json!("aé"), json!(""), json!({"b": 1})]);
    (prop::sample::select(kinds.to_vec()), 0..3, 0..2, items, texts).prop_map(|(kind, output, index, item, text)| {
        json!({
            "type": format!("response.{kind}"), "output_index": output, "content_index": index, "summary_index": index,
            "item": item, "delta": text, "text": text, "arguments": text,
            "annotation": {"url": "u", "start_index": index, "end_index": 9},
            "response": {"status": "completed", "output": [item]},
        })
    })
}

proptest! {
    #[test]
    fn events_in_any_order_make_a_sound_answer_or_an_error(
        events in prop::collection::vec(any_event(), 0..14),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut body = stream(&events).into_bytes();
        let outcome = decode("openai", &String::from_utf8_lossy(&body));
        if let (chunks, Ok(())) = &outcome {
            for part in assembled(chunks).parts {
                let Content::Text(text) = &part.content else { continue };
                for citation in &part.citations {
                    let place = citation.start_byte as usize..citation.end_byte as usize;
                    prop_assert!(text.get(place).is_some(), "{text} {citation:?}");
                }
            }
        }
        let at = cut.index(body.len() + 1);
        body.truncate(at);
        let dialect = dialect::named("openai").expect("a dialect");
        recordings::decode(Decoder::new(dialect), [body.as_slice()]).1.ok();
    }
}
