//! Tests of prompts encoded as request bodies.

use super::*;
use crate::{
    context::testing::{self, message, response, user},
    model::{
        BlobId, CallId, Contents, Media, Message, ModelResponse, OutputPart, Prompt, PromptNote, ProviderItem, Role,
        Tool, ToolCall, ToolOutcome, ToolResult,
        media::{BlobRef, Source},
    },
    provider::{
        http::sse,
        responses::{
            KIND, assistant_items, dialect::CALL_IDS, encode, encode_options::EncodeOptions, media::unsupported_media,
        },
    },
};

fn form(dialect: &str) -> EncodeOptions<'static> {
    EncodeOptions {
        dialect: dialect::named(dialect).expect("a dialect"),
        provider: "main",
        reasons: true,
        summaries: true,
        with_own_items: true,
    }
}

/// A message by a model of `main`.
fn by(model: &str, parts: Vec<Part>) -> Message {
    let response = ModelResponse { provider: "main".to_owned(), ..response(&format!("main/{model}")) };
    Message { response: Some(response), ..message(Role::Assistant, parts) }
}

/// A message by the model that is called.
fn assistant(parts: Vec<Part>) -> Message {
    by("gpt-5", parts)
}

fn attached(part: Part, own: Value) -> Part {
    Part { provider_metadata: Some(json!({KIND: own}).to_string()), ..part }
}

fn reasoning(text: &str) -> Part {
    Part::new(Content::Reasoning { text: text.to_owned(), redacted: text.is_empty() })
}

fn encrypted(text: &str, id: &str) -> Part {
    attached(reasoning(text), json!({"id": id, "encrypted_content": "xyz"}))
}

fn said_as(text: &str, id: &str) -> Part {
    attached(Part::text(text), json!({"id": id}))
}

fn call(id: &str, arguments: &str) -> Part {
    Part::new(Content::ToolCall(ToolCall {
        id: CallId::new(id),
        name: "look".to_owned(),
        arguments: arguments.to_owned(),
    }))
}

fn item(provider: &str, json: Value) -> Part {
    Part::new(Content::ProviderItem(ProviderItem {
        provider: provider.to_owned(),
        kind: json["type"].as_str().unwrap_or_default().to_owned(),
        json: json.to_string(),
        title: String::new(),
    }))
}

fn result(call: &str, outcome: ToolOutcome, parts: Vec<OutputPart>) -> Message {
    let result = ToolResult {
        call: CallId::new(call),
        name: "look".to_owned(),
        parts,
        outcome,
        truncation: None,
        display_text: String::new(),
    };
    message(Role::Tool, vec![Part::new(Content::ToolResult(result))])
}

fn prompt(messages: Vec<Message>) -> Prompt {
    let mut prompt = Prompt { model: "gpt-5".to_owned(), ..testing::prompt(messages) };
    prompt.contents.insert(BlobId::new("b"), b"abc".as_slice().into());
    prompt
}

fn body_of(form: EncodeOptions<'_>, prompt: &Prompt) -> Value {
    serde_json::from_slice(&encode::request(prompt, form).body).expect("JSON")
}

fn sent(dialect: &str, messages: Vec<Message>) -> Value {
    body_of(form(dialect), &prompt(messages))["input"].take()
}

fn tool(schema: Option<&str>, strict: Option<bool>) -> Tool {
    Tool { input_schema: schema.map(str::to_owned), strict, ..testing::tool("look") }
}

fn says(role: &str, text: &str) -> Value {
    json!({"type": "message", "role": role, "content": text})
}

#[test]
fn a_whole_request_is_what_the_service_documents() {
    let prompt = Prompt {
        system: vec!["Be brief.".to_owned(), "# Notes\nNone.".to_owned()],
        tools: vec![
            tool(Some(r#"{"type":"object","properties":{"n":{"type":"number","maximum":1.50}}}"#), Some(true)),
            tool(None, None),
        ],
        provider_tools: vec![r#"{"type":"web_search","search_context_size":"low"}"#.to_owned()],
        max_output_tokens: Some(99),
        ..prompt(vec![
            user("Look."),
            assistant(vec![
                encrypted("Hm.", "rs_1"),
                said_as("I look.", "msg_1"),
                attached(call("a", r#"{"n": 1}"#), json!({"id": "fc_1"})),
            ]),
            result("a", ToolOutcome::Success, vec!["one".into(), "two".into()]),
        ])
    };
    let mut body = body_of(form("openai"), &prompt);
    let key = body["prompt_cache_key"].take();
    assert_eq!(key.as_str().map(str::len), Some(32));
    let parameters = json!({"type": "object", "properties": {"n": {"type": "number", "maximum": 1.5}}});
    let nothing = json!({"type": "object", "properties": {}});
    assert_eq!(
        body,
        json!({
            "model": "gpt-5",
            "instructions": "Be brief.\n\n# Notes\nNone.",
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 99,
            "reasoning": {"summary": "auto"},
            "prompt_cache_key": null,
            "input": [
                says("user", "Look."),
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "xyz"},
                {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                    "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
                {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "look", "arguments": "{\"n\": 1}"},
                {"type": "function_call_output", "call_id": "a", "output": "one\ntwo"},
            ],
            "tools": [
                {"type": "function", "name": "look", "description": "Does look.", "parameters": parameters, "strict": true},
                {"type": "function", "name": "look", "description": "Does look.", "parameters": nothing, "strict": false},
                {"type": "web_search", "search_context_size": "low"},
            ],
        })
    );
    let text = String::from_utf8(encode::request(&prompt, form("openai")).body).expect("UTF-8");
    assert!(text.contains(r#""maximum":1.50"#), "the schema goes out as the host wrote it");
}

#[test]
fn the_question_for_a_size_has_what_the_model_reads_and_nothing_else() {
    let prompt = Prompt {
        system: vec!["Be brief.".to_owned()],
        max_output_tokens: Some(99),
        tools: vec![tool(None, None)],
        ..prompt(vec![user("Hello")])
    };
    let question: Value = serde_json::from_slice(&encode::count_request(&prompt, form("openai"))).expect("JSON");
    let fields: Vec<&String> = question.as_object().expect("fields").keys().collect();
    assert_eq!(fields, ["input", "instructions", "model", "reasoning", "tools"]);
}

#[test]
fn requests_of_one_conversation_share_a_cache() {
    let key =
        |dialect: &str, messages: Vec<Message>| body_of(form(dialect), &prompt(messages))["prompt_cache_key"].take();
    let first = user("Hello");
    let other = Message { id: crate::model::MessageId::new("other"), ..user("Hello") };
    let longer = vec![first.clone(), assistant(vec![Part::text("Hi")]), user("So?")];
    let one = key("openai", vec![first]);
    assert_eq!(key("openai", longer), one);
    assert_ne!(key("openai", vec![other]), one);
    assert_eq!(key("openrouter", vec![user("Hello")]), Value::Null);
}

#[test]
fn instructions_go_where_the_service_wants_them() {
    let messages = || vec![message(Role::System, vec![Part::text("Now in French.")])];
    assert_eq!(sent("openai", messages()), json!([says("developer", "Now in French.")]));
    assert_eq!(sent("compatible", messages()), json!([says("system", "Now in French.")]));
    let instructions = |dialect: &str| body_of(form(dialect), &prompt(messages()))["instructions"].take();
    assert_eq!(instructions("openai"), Value::Null);
    assert_eq!(instructions("chatgpt"), "You are a helpful assistant.");
}

/// Row A1
#[test]
fn reasoning_goes_back_to_the_model_that_wrote_it_only() {
    let parts = || {
        vec![
            encrypted("Hm.", "rs_1"),
            said_as("Hi", "msg_1"),
            attached(call("a", "{}"), json!({"id": "fc_1", "caller": {"type": "direct"}})),
        ]
    };
    let types = |message: Message| {
        let end = result("a", ToolOutcome::Success, vec![]);
        let sent = sent("openai", vec![message, end]);
        let kind = |item: &Value| format!("{} {}", item["type"].as_str().unwrap(), item["id"]);
        let items = sent.as_array().expect("items");
        items.iter().map(kind).collect::<Vec<_>>()
    };
    assert_eq!(
        types(assistant(parts())),
        ["reasoning \"rs_1\"", "message \"msg_1\"", "function_call \"fc_1\"", "function_call_output null"]
    );
    let without = ["message null", "function_call null", "function_call_output null"];
    assert_eq!(types(by("gpt-4", parts())), without);
    assert_eq!(types(message(Role::Assistant, parts())), without);
}

#[test]
fn parts_of_a_summary_are_one_item_again() {
    let parts = vec![
        reasoning("One."),
        reasoning("Two."),
        encrypted("Three.", "rs_1"),
        encrypted("", "rs_2"),
        attached(reasoning("Raw."), json!({"id": "other_3", "encrypted_content": "xyz", "raw": true})),
        Part::text("Hi"),
    ];
    let text = |text: &str| json!({"type": "summary_text", "text": text});
    assert_eq!(
        sent("openai", vec![assistant(parts)]),
        json!([
            {"type": "reasoning", "id": "rs_1", "summary": [text("One."), text("Two."), text("Three.")], "encrypted_content": "xyz"},
            {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "xyz"},
            {"type": "reasoning", "id": "other_3", "summary": [], "encrypted_content": "xyz"},
            says("assistant", "Hi"),
        ])
    );
}

/// Row A1: llama.cpp (b11434) reads the first text of an item, and rejects an item without one.
#[test]
fn plain_reasoning_goes_back_in_the_tool_loop_to_services_that_read_it() {
    let said = |model: &str| {
        let parts = vec![reasoning("Hm. "), reasoning("So."), call("a", "{}"), call("b", "{}")];
        by(model, parts)
    };
    let ends = || ["a", "b"].map(|id| result(id, ToolOutcome::Success, vec![]));
    let turn = |model: &str| {
        let mut turn = vec![user("Look."), said(model)];
        turn.extend(ends());
        turn
    };
    let types = |dialect: &str, messages: Vec<Message>| {
        let sent = sent(dialect, messages);
        let items = sent.as_array().expect("items").iter();
        let types = items.map(|item| item["type"].as_str().expect("a type").to_owned());
        types.collect::<Vec<_>>()
    };
    let calls = ["function_call", "function_call"];
    let results = ["function_call_output", "function_call_output"];
    let whole = [&["message", "reasoning"], &calls[..], &results].concat();
    let without = [&["message"], &calls[..], &results].concat();
    let later = [&without[..], &["message"]].concat();
    assert_eq!(
        sent("llamacpp", turn("gpt-5"))[1],
        json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm. So."}]})
    );
    assert_eq!(types("llamacpp", turn("gpt-5")), whole);
    assert_eq!(types("llamacpp", turn("gpt-4")), without, "another model's");
    assert_eq!(types("compatible", turn("gpt-5")), without, "not known");
    let spoken = [turn("gpt-5"), vec![user("And now?")]].concat();
    assert_eq!(types("llamacpp", spoken.clone()), later, "an earlier turn's");
    let omitted = |messages| encode::request(&prompt(messages), form("llamacpp")).left_out.len();
    assert_eq!((omitted(turn("gpt-5")), omitted(spoken)), (0, 2));
}

#[test]
fn reasoning_without_what_follows_it_is_left_out() {
    let cut_off = assistant(vec![said_as("Hi", "msg_1"), encrypted("Hm.", "rs_1")]);
    let before_item =
        assistant(vec![encrypted("Hm.", "rs_1"), item("other", json!({"type": "web_search_call"})), Part::text("Hi")]);
    let never_ended = assistant(vec![reasoning("Hm."), Part::text("Hi")]);
    for message in [cut_off, before_item, never_ended] {
        let sent = sent("openai", vec![message]);
        assert_eq!(sent.as_array().map(Vec::len), Some(1), "{sent}");
        assert_eq!(sent[0]["type"], "message");
    }
    let plain = assistant(vec![Part::text("Hi"), reasoning("Hm.")]);
    let sent = sent("llamacpp", vec![user("Hello."), plain]);
    assert_eq!(sent.as_array().map(Vec::len), Some(2), "{sent}");
}

#[test]
fn items_go_back_as_they_came_to_the_model_that_made_them() {
    let search = json!({"type": "web_search_call", "id": "ws_1", "action": {"query": "q"}});
    let picture = json!({"type": "image_generation_call", "id": "ig_1", "result": null});
    let parts = || {
        vec![
            item("main", search.clone()),
            item("main", picture.clone()),
            item("other", search.clone()),
            Part::text("Hi"),
        ]
    };
    assert_eq!(
        sent("openai", vec![assistant(parts())]),
        json!([search, says("assistant", "Hi")]),
        "a picture that was not kept cannot be sent"
    );
    assert_eq!(sent("openai", vec![by("gpt-4", parts())]), json!([says("assistant", "Hi")]));
}

#[test]
fn words_of_one_message_go_back_as_one_message() {
    let parts = vec![
        attached(Part::text("a"), json!({"id": "msg_1", "phase": "commentary"})),
        attached(Part::new(Content::Refusal("b".to_owned())), json!({"id": "msg_1", "phase": "commentary"})),
        attached(Part::text("c"), json!({"id": "msg_2", "phase": "final_answer"})),
        attached(Part::text("d"), json!({"id": "capture-1", "phase": "final_answer"})),
        Part::text("e"),
        Part::text("f"),
        Part::new(Content::Refusal("g".to_owned())),
        Part::text(""),
    ];
    let text = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let whole = |id: &str, phase: &str, content: Value| json!({"type": "message", "role": "assistant", "id": id, "status": "completed", "phase": phase, "content": content});
    assert_eq!(
        sent("openai", vec![assistant(parts.clone())]),
        json!([
            whole("msg_1", "commentary", json!([text("a"), {"type": "refusal", "refusal": "b"}])),
            whole("msg_2", "final_answer", json!([text("c")])),
            {"type": "message", "role": "assistant", "phase": "final_answer", "content": "d"},
            says("assistant", "efg"),
        ]),
        "an id that the service did not give is none"
    );
    assert_eq!(
        sent("openai", vec![by("gpt-4", parts)]),
        json!([says("assistant", "ab"), says("assistant", "c"), says("assistant", "d"), says("assistant", "efg")])
    );
}

#[test]
fn arguments_that_are_no_object_go_back_empty() {
    for (arguments, expected) in [("", "{}"), ("[1]", "{}"), ("{\"n\"", "{}"), ("{ }", "{ }")] {
        let end = result("a", ToolOutcome::Success, vec![]);
        let sent = sent("openai", vec![assistant(vec![call("a", arguments)]), end]);
        assert_eq!(sent[0]["arguments"], expected);
    }
}

#[test]
fn a_custom_call_and_its_result_go_back_as_such() {
    let own = json!({"id": "ctc_1", "type": "custom_tool_call"});
    let custom = |message: fn(Vec<Part>) -> Message| {
        let call = attached(call("a", r#"{"input":"x \"y\""}"#), own.clone());
        let end = result("a", ToolOutcome::Error, vec!["no".into()]);
        sent("openai", vec![message(vec![call]), end])
    };
    assert_eq!(
        custom(assistant),
        json!([
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "a", "name": "look", "input": "x \"y\""},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "Error: no"},
        ])
    );
    assert_eq!(
        custom(|parts| by("gpt-4", parts))[0]["type"],
        "function_call",
        "of another model it is a call like any"
    );
}

#[test]
fn calls_with_ids_that_the_service_refuses_are_renamed_with_their_results() {
    let long = "x".repeat(90);
    let end = result(&long, ToolOutcome::Success, vec![]);
    let sent = sent("openai", vec![assistant(vec![call(&long, "{}")]), end]);
    let id = sent[0]["call_id"].as_str().expect("an id");
    assert!(id.len() <= 64, "{id}");
    assert_eq!(sent[1]["call_id"], id);
}

#[test]
fn the_words_of_a_result_say_how_the_call_ended() {
    let table = [
        (ToolOutcome::Success, vec!["a".into(), "b".into()], "a\nb"),
        (ToolOutcome::Success, vec![], ""),
        (ToolOutcome::Error, vec!["a".into()], "Error: a"),
        (ToolOutcome::Error, vec![], "Error"),
        (ToolOutcome::Denied, vec!["a".into()], "Denied: a"),
        (ToolOutcome::Denied, vec![], "Denied"),
        (ToolOutcome::TimedOut, vec!["late".into()], "late"),
    ];
    for (outcome, parts, expected) in table {
        let made = assistant(vec![call("a", "{}")]);
        let sent = sent("openai", vec![made, result("a", outcome, parts)]);
        assert_eq!(sent[1]["output"], expected, "{outcome:?}");
    }
}

fn kept(media_type: &str, filename: &str) -> Media {
    Media {
        media_type: media_type.to_owned(),
        source: Source::Blob(BlobRef { id: BlobId::new("b"), bytes: 3, pixels: None }),
        filename: filename.to_owned(),
    }
}

fn at_address(media_type: &str) -> Media {
    Media { source: Source::Url("https://example.org/a".to_owned()), ..kept(media_type, "") }
}

#[test]
fn media_are_contents_of_what_a_user_says() {
    let medium = |media| Part::new(Content::Media(media));
    let mut missing = kept("image/png", "");
    if let Source::Blob(kept) = &mut missing.source {
        kept.id = BlobId::new("gone");
    }
    let parts = vec![
        Part::text("See:"),
        medium(kept("image/PNG; a=b", "")),
        medium(at_address("image/png")),
        medium(kept("application/pdf", "a.pdf")),
        medium(kept("application/pdf", "")),
        medium(at_address("application/pdf")),
        medium(missing),
    ];
    let picture = |url: &str| json!({"type": "input_image", "image_url": url, "detail": "auto"});
    let file =
        |name: &str| json!({"type": "input_file", "filename": name, "file_data": "data:application/pdf;base64,YWJj"});
    assert_eq!(
        sent("openai", vec![message(Role::User, parts)]),
        json!([{"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "See:"},
            picture("data:image/png;base64,YWJj"),
            picture("https://example.org/a"),
            file("a.pdf"),
            file("file"),
            {"type": "input_file", "file_url": "https://example.org/a"},
            {"type": "input_text", "text": "[unsupported content]"},
        ]}])
    );
}

#[test]
fn media_of_results_stand_in_them_or_after_them() {
    let conversation = || {
        let given = vec!["See:".into(), OutputPart::Media(kept("image/png", "a.png"))];
        let made = assistant(vec![call("a", "{}")]);
        vec![made, result("a", ToolOutcome::Error, given)]
    };
    let picture = json!({"type": "input_image", "image_url": "data:image/png;base64,YWJj", "detail": "auto"});
    let text = |text: &str| json!({"type": "input_text", "text": text});
    assert_eq!(sent("openai", conversation())[1]["output"], json!([text("Error"), text("See:"), picture]));
    let elsewhere = sent("lmstudio", conversation());
    assert_eq!(elsewhere[1]["output"], "Error: See:\n[a.png (image/png): shown after the results]");
    assert_eq!(elsewhere[2]["content"], json!([text("[From the result of look: a.png (image/png)]"), picture]));
}

#[test]
fn only_supported_media_are_sent_to_a_service() {
    let table = [
        ("openai", kept("image/png", ""), Role::User, true),
        ("openai", kept("image/png", ""), Role::Tool, true),
        ("openai", kept("image/png", ""), Role::Assistant, true),
        ("openai", at_address("image/png"), Role::Assistant, false),
        ("openai", kept("application/pdf", ""), Role::Assistant, false),
        ("openai", kept("image/tiff", ""), Role::User, false),
        ("openai", kept("application/pdf", ""), Role::User, true),
        ("openai", at_address("application/pdf"), Role::User, true),
        ("openai", kept("audio/wav", ""), Role::User, false),
        ("openai", kept("video/mp4", ""), Role::User, false),
        ("xai", kept("application/pdf", ""), Role::User, false),
        ("lmstudio", kept("image/png", ""), Role::User, true),
        ("lmstudio", at_address("image/png"), Role::User, false),
    ];
    for (dialect, media, role, takes) in table {
        let why = unsupported_media(dialect::named(dialect).expect("known").media, &media, role);
        assert_eq!(why.is_none(), takes, "{dialect} {media:?} {role:?}");
    }
}

#[test]
fn what_is_left_out_of_a_request_is_reported() {
    let messages = vec![
        user(""),
        assistant(vec![encrypted("Hm.", "rs_1")]),
        assistant(vec![encrypted("Hm.", "rs_1"), Part::text("Hi")]),
        by(
            "gpt-4",
            vec![
                reasoning("Hm."),
                encrypted("Hm.", "rs_1"),
                item("main", json!({"type": "web_search_call"})),
                Part::text("Hi"),
            ],
        ),
    ];
    let notes = encode::request(&prompt(messages), form("openai")).left_out;
    let shown: Vec<(Option<usize>, &str)> =
        notes.iter().map(|PromptNote { part, text, .. }| (*part, text.as_str())).collect();
    let nothing = "Nothing in the message can be sent to this model.";
    let unsent = "The reasoning is not sent back to this model.";
    assert_eq!(
        shown,
        [
            (None, nothing),
            (None, nothing),
            (Some(0), unsent),
            (Some(1), unsent),
            (Some(2), "The item can be sent back only to the model that generated it."),
        ]
    );
}

/// Type and id of each item that is sent back.
fn names(items: &[Value]) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    items.iter().map(|item| (word(&item["type"]), word(&item["id"]))).collect()
}

#[test]
fn a_recorded_answer_goes_back_as_the_items_that_it_came_as() {
    let mut seen = 0;
    for (file, body, answer) in recordings::answers(bodies::RECORDED, bodies::decoder) {
        // Ids that change during the response, and images that are too large, are not sent back.
        if !file.starts_with("openai-responses/rig") {
            continue;
        }
        let mut came = Vec::new();
        let mut reader = sse::Reader::default();
        let mut events = Vec::new();
        reader.push(&body, &mut events).expect("events");
        for event in events {
            let event: Value = serde_json::from_str(&event.data).expect("JSON");
            if event["type"] == "response.output_item.done" {
                came.push(event["item"].clone());
            }
        }
        let forgotten = |item: &Value| item["type"] == "reasoning" && item["encrypted_content"].is_null();
        if came.iter().any(forgotten) {
            continue;
        }
        let last_reasons = came.last().is_some_and(|item| item["type"] == "reasoning");
        came.truncate(came.len() - usize::from(last_reasons));
        let message = assistant(answer.parts);
        let ids = crate::provider::call_ids::CallIdMap::of(std::slice::from_ref(&message), CALL_IDS);
        let written = assistant_items::answer(&message, (true, true), form("openai"), (&ids, &Contents::default()));
        let written = serde_json::to_value(&written.items).expect("JSON");
        let written = written.as_array().expect("items");
        assert_eq!(names(written), names(&came), "{file}");
        for (written, came) in written.iter().zip(&came) {
            for field in ["encrypted_content", "summary", "call_id", "name", "arguments", "phase"] {
                if written["arguments"] == "{}" && field == "arguments" {
                    continue;
                }
                assert_eq!(written[field], came[field], "{file} {field}");
            }
        }
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn p11_a_call_for_the_client_goes_back_with_its_output_only() {
    let call = |kind: &str, id: &str| json!({"type": kind, "id": "x_1", "call_id": id, "status": "completed"});
    let output = json!({"type": "shell_call_output", "call_id": "c2", "output": []});
    let search = json!({"type": "tool_search_call", "execution": "server", "call_id": null});
    let message = by(
        "gpt-5",
        vec![
            Part::text("I do."),
            item("main", call("local_shell_call", "c1")),
            item("main", call("shell_call", "c2")),
            item("main", output.clone()),
            item("main", search.clone()),
            item("main", call("computer_call", "c3")),
        ],
    );
    let prompt = prompt(vec![user("Do it."), message, user("And now?")]);
    let body = body_of(form("openai"), &prompt);
    let sent = body["input"].as_array().unwrap();
    assert_eq!(sent[2..5], [call("shell_call", "c2"), output, search], "{body}");
    assert_eq!(sent.len(), 6);
    let notes = encode::request(&prompt, form("openai")).left_out;
    let parts: Vec<_> = notes.into_iter().map(|note| note.part).collect();
    assert_eq!(parts, [Some(1), Some(5)]);
}
