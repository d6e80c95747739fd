//! Tests of requests: what is encoded of a prompt, and what is left out.

use serde_json::{Value, json};

use super::super::{
    encode::{self, EncodeOptions},
    options,
};
use crate::{
    context::testing::{self, message, results, tool, user},
    model::{
        CallId, Content, Contents, Generation, Media, Message, ModelResponse, OutputPart, Part, Prompt, ProviderItem,
        Role, ToolCall, ToolOutcome, ToolResult, derive,
        generation::{ReasoningEffort, ResponseFormat, Setting, Temperature, ToolChoice, TopP},
        media::{BlobRef, Source},
    },
    provider::{ModelInfo, Request},
};

/// A model that requires signed calls.
const SIGNS: &str = "gemini-3-pro-preview";

/// A model that does not.
const OLD: &str = "gemini-2.5-flash";

/// The placeholder for a missing signature.
const UNSIGNED: &str = "skip_thought_signature_validator";

fn manner(model: &str) -> EncodeOptions<'static> {
    EncodeOptions { provider: "main", model: ModelInfo::unknown(model) }
}

fn prompt(model: &str, messages: Vec<Message>) -> Prompt {
    Prompt { model: model.to_owned(), ..testing::prompt(messages) }
}

fn encoded(prompt: &Prompt) -> Request {
    encode::request(prompt, &manner(&prompt.model))
}

fn body(prompt: &Prompt) -> Value {
    serde_json::from_slice(&encoded(prompt).body).expect("JSON")
}

fn sent(model: &str, messages: Vec<Message>) -> Value {
    body(&prompt(model, messages))["contents"].take()
}

/// A message by a model of `main`.
fn said(model: &str, parts: Vec<Part>) -> Message {
    let response = ModelResponse { provider: "main".to_owned(), ..testing::response(&format!("main/{model}")) };
    Message { response: Some(response), ..message(Role::Assistant, parts) }
}

fn call(id: &str, arguments: &str) -> Part {
    Part::new(Content::ToolCall(ToolCall { id: CallId::new(id), name: id.to_owned(), arguments: arguments.to_owned() }))
}

fn thought(text: &str) -> Part {
    Part::new(Content::Reasoning { text: text.to_owned(), redacted: false })
}

/// A part with metadata of the service.
fn with(part: Part, attached: &Value) -> Part {
    Part { provider_metadata: Some(json!({ "gemini": attached }).to_string()), ..part }
}

fn signed(part: Part, signature: &str) -> Part {
    with(part, &json!({ "thoughtSignature": signature }))
}

fn content(role: &str, parts: &[Value]) -> Value {
    json!({"role": role, "parts": parts})
}

fn text(text: &str) -> Value {
    json!({ "text": text })
}

fn response(name: &str, output: &str) -> Value {
    json!({"functionResponse": {"name": name, "response": {"output": output}}})
}

#[test]
fn a_whole_request_is_what_the_service_documents() {
    let prompt = Prompt {
        system: vec!["Be brief.".to_owned(), "# notes\nTea.".to_owned()],
        tools: vec![tool("look")],
        provider_tools: vec![r#"{"googleSearch":{}}"#.to_owned()],
        max_output_tokens: Some(99),
        ..prompt(
            SIGNS,
            vec![
                user("Look."),
                said(
                    SIGNS,
                    vec![thought("Hm."), Part::text("I look."), signed(call("look", r#"{"n": 1.50}"#), "c2ln")],
                ),
                results(&[("look", "seen")]),
            ],
        )
    };
    assert_eq!(
        body(&prompt),
        json!({
            "systemInstruction": {"parts": [text("Be brief."), text("# notes\nTea.")]},
            "contents": [
                content("user", &[text("Look.")]),
                content("model", &[
                    text("I look."),
                    json!({"functionCall": {"name": "look", "args": {"n": 1.5}}, "thoughtSignature": "c2ln"}),
                ]),
                content("user", &[response("look", "seen")]),
            ],
            "tools": [
                {"functionDeclarations": [{
                    "name": "look", "description": "Does look.",
                    "parametersJsonSchema": {"type": "object"},
                }]},
                {"googleSearch": {}},
            ],
            "generationConfig": {"maxOutputTokens": 99},
        })
    );
}

#[test]
fn parts_go_back_to_the_model_that_wrote_them_as_they_came() {
    let answer = vec![
        signed(thought("Let me see."), "dGhpbms="),
        thought("Unsigned."),
        Part::text("It is"),
        signed(Part::text(" red"), "c2ln"),
        Part::text("."),
        signed(Part::text(""), "bW9yZQ=="),
        Part::text(""),
    ];
    let wrote = |model: &str| vec![user("?"), said(model, answer.clone()), user("!")];
    let own = encoded(&prompt(SIGNS, wrote(SIGNS)));
    assert_eq!(
        body(&prompt(SIGNS, wrote(SIGNS)))["contents"][1]["parts"],
        json!([
            {"text": "Let me see.", "thought": true, "thoughtSignature": "dGhpbms="},
            {"text": "It is"},
            {"text": " red", "thoughtSignature": "c2ln"},
            {"text": "."},
            {"text": "", "thoughtSignature": "bW9yZQ=="},
        ])
    );
    let parts: Vec<_> = own.left_out.iter().map(|note| note.part).collect();
    assert_eq!(parts, [Some(1)]);
    // Signatures of another model are not sent.
    assert_eq!(
        sent(SIGNS, wrote("gemini-3.1-flash-lite"))[1]["parts"],
        json!([{"text": "It is"}, {"text": " red"}, {"text": "."}])
    );
}

#[test]
fn calls_without_a_signature_of_their_own_get_a_stand_in_where_one_is_needed() {
    let history = |parts: Vec<Part>| vec![user("?"), said("another", parts), results(&[("a", "1"), ("b", "2")])];
    let parallel = vec![signed(call("a", "{}"), "theirs"), call("b", "{}")];
    let written = |name: &str| json!({"functionCall": {"name": name, "args": {}}});
    let mut first = written("a");
    assert_eq!(sent(OLD, history(parallel.clone()))[1]["parts"], json!([first, written("b")]));
    first["thoughtSignature"] = json!(UNSIGNED);
    assert_eq!(sent(SIGNS, history(parallel))[1]["parts"], json!([first, written("b")]));
    // Of a response's own parallel calls only the first is signed.
    let own = vec![signed(call("a", "{}"), "b3du"), call("b", "{}")];
    let messages = vec![user("?"), said(SIGNS, own), results(&[("a", "1"), ("b", "2")])];
    first["thoughtSignature"] = json!("b3du");
    assert_eq!(sent(SIGNS, messages)[1]["parts"], json!([first, written("b")]));
}

#[test]
fn results_stand_in_one_content_in_the_order_of_the_calls() {
    let calls = vec![with(call("a", "{}"), &json!({"id": "c1"})), call("b", "no")];
    let messages = vec![user("?"), said(OLD, calls), results(&[("b", "2")]), results(&[("a", "1")]), user("And?")];
    assert_eq!(
        sent(OLD, messages),
        json!([
            content("user", &[text("?")]),
            content(
                "model",
                &[
                    json!({"functionCall": {"id": "c1", "name": "a", "args": {}}}),
                    json!({"functionCall": {"name": "b", "args": {}}}),
                ]
            ),
            content(
                "user",
                &[
                    json!({"functionResponse": {"id": "c1", "name": "a", "response": {"output": "1"}}}),
                    response("b", "2"),
                    text("And?"),
                ]
            ),
        ])
    );
}

#[test]
fn failures_of_tools_are_said_as_errors() {
    let table = [
        (ToolOutcome::Success, "", json!({"output": ""})),
        (ToolOutcome::Error, "gone", json!({"error": "gone"})),
        (ToolOutcome::Error, "", json!({"error": "Error"})),
        (ToolOutcome::Denied, "", json!({"error": "Denied"})),
        (ToolOutcome::TimedOut, "", json!({"error": "Timed out"})),
        (ToolOutcome::Cancelled, "late", json!({"error": "late"})),
    ];
    for (outcome, words, expected) in table {
        let result = ToolResult {
            call: CallId::new("a"),
            name: "a".to_owned(),
            parts: vec![words.into()],
            outcome,
            truncation: None,
            display_text: String::new(),
        };
        let results = message(Role::Tool, vec![Part::new(Content::ToolResult(result))]);
        let contents = sent(OLD, vec![user("?"), said(OLD, vec![call("a", "{}")]), results]);
        assert_eq!(contents[2]["parts"][0]["functionResponse"]["response"], expected, "{outcome:?}");
    }
}

#[test]
fn user_and_model_take_turns_and_instructions_in_between_are_a_users() {
    let contents = sent(
        OLD,
        vec![
            message(Role::System, vec![Part::text("First.")]),
            said(OLD, vec![Part::text("Welcome.")]),
            said(OLD, vec![Part::new(Content::Refusal("No.".to_owned()))]),
            user("a"),
            message(Role::System, vec![Part::text("In French.")]),
            user("b"),
        ],
    );
    assert_eq!(
        contents,
        json!([
            content("user", &[text("[The conversation begins.]")]),
            content("model", &[text("Welcome."), text("No.")]),
            content("user", &[text("a"), text("[Instructions]\nIn French."), text("b")]),
        ])
    );
}

#[test]
fn items_of_the_service_go_back_and_those_of_others_do_not() {
    let code = json!({"executableCode": {"code": "1"}, "thoughtSignature": "c2ln"});
    let item = |provider: &str| {
        Part::new(Content::ProviderItem(ProviderItem {
            provider: provider.to_owned(),
            kind: "executableCode".to_owned(),
            json: code.to_string(),
            title: String::new(),
        }))
    };
    let messages = |model: &str| {
        let parts = vec![item("main"), item("other"), Part::text("Done.")];
        vec![user("?"), said(model, parts), user("!")]
    };
    assert_eq!(sent(OLD, messages(OLD))[1]["parts"], json!([code, text("Done.")]));
    let unsigned = json!({"executableCode": {"code": "1"}});
    assert_eq!(sent(OLD, messages(SIGNS))[1]["parts"], json!([unsigned, text("Done.")]));
    let left_out = encoded(&prompt(OLD, messages(OLD))).left_out;
    assert_eq!(left_out.len(), 1);
    assert_eq!(left_out[0].part, Some(1));
}

#[test]
fn a_picture_whose_content_was_not_kept_does_not_go_back() {
    let picture = |data: Value| {
        Part::new(Content::ProviderItem(ProviderItem {
            provider: "main".to_owned(),
            kind: "inlineData".to_owned(),
            json: json!({"inlineData": {"mimeType": "image/png", "data": data}}).to_string(),
            title: "image/png".to_owned(),
        }))
    };
    let whole = json!({"inlineData": {"mimeType": "image/png", "data": "aGk="}});
    let parts = vec![picture(json!("aGk=")), picture(Value::Null)];
    let encoded = encoded(&prompt(OLD, vec![user("?"), said(OLD, parts), user("!")]));
    let body: Value = serde_json::from_slice(&encoded.body).expect("JSON");
    assert_eq!(body["contents"][1]["parts"], json!([whole]));
    let [note] = encoded.left_out.as_slice() else { panic!("{:?}", encoded.left_out) };
    assert_eq!(note.part, Some(1));
    assert_eq!(note.text, "The content of the item was too large to be kept.");
}

#[test]
fn a_message_of_which_nothing_can_be_sent_is_reported() {
    let messages = vec![user("?"), said(OLD, vec![thought("Hm.")]), user("!")];
    let encoded = encoded(&prompt(OLD, messages));
    let parts: Vec<_> = encoded.left_out.iter().map(|note| note.part).collect();
    assert_eq!(parts, [Some(0), None]);
}

/// A media part of this type. Adds its content to `contents`.
fn medium(media_type: &str, contents: &mut Contents) -> Media {
    let bytes = media_type.as_bytes();
    let id = derive::blob(bytes);
    contents.insert(id.clone(), bytes.to_vec().into());
    Media {
        media_type: media_type.to_owned(),
        source: Source::Blob(BlobRef { id, bytes: bytes.len() as u64, pixels: None }),
        filename: String::new(),
    }
}

#[test]
fn media_of_results_stand_in_them_where_the_model_takes_that() {
    let mut contents = Contents::default();
    let picture = medium("image/png", &mut contents);
    let sound = medium("audio/wav", &mut contents);
    let inline = |media: &Media| {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let data = STANDARD.encode(&media.media_type);
        json!({"inlineData": {"mimeType": media.media_type, "data": data}})
    };
    let result = ToolResult {
        call: CallId::new("a"),
        name: "a".to_owned(),
        parts: vec!["seen".into(), OutputPart::Media(picture.clone()), OutputPart::Media(sound.clone())],
        outcome: ToolOutcome::Success,
        truncation: None,
        display_text: String::new(),
    };
    let sent = |model: &str| {
        let results = message(Role::Tool, vec![Part::new(Content::ToolResult(result.clone()))]);
        let prompt = Prompt {
            contents: contents.clone(),
            ..prompt(model, vec![user("?"), said(model, vec![call("a", "{}")]), results])
        };
        body(&prompt)["contents"][2]["parts"].take()
    };
    let from = |title: &str| text(&format!("[From the result of a: {title}]"));
    let later = |titles: &[&str]| {
        let later = titles.iter().map(|title| format!("\n[{title}: shown after the results]"));
        format!("seen{}", later.collect::<String>())
    };
    assert_eq!(
        sent(SIGNS),
        json!([
            {"functionResponse": {
                "name": "a", "response": {"output": later(&["audio/wav"])},
                "parts": [inline(&picture)],
            }},
            from("audio/wav"),
            inline(&sound),
        ])
    );
    assert_eq!(
        sent(OLD),
        json!([
            response("a", &later(&["image/png", "audio/wav"])),
            from("image/png"),
            inline(&picture),
            from("audio/wav"),
            inline(&sound),
        ])
    );
}

#[test]
fn media_of_users_are_sent_as_content_or_as_an_address() {
    let mut contents = Contents::default();
    let file = medium("application/pdf", &mut contents);
    let video = Media {
        media_type: "video/mp4".to_owned(),
        source: Source::Url("https://example.org/a.mp4".to_owned()),
        filename: String::new(),
    };
    let missing = medium("image/png", &mut Contents::default());
    let parts = [file, video, missing].map(|media| Part::new(Content::Media(media)));
    let prompt = Prompt { contents, ..prompt(OLD, vec![message(Role::User, parts.to_vec())]) };
    assert_eq!(
        body(&prompt)["contents"][0]["parts"],
        json!([
            {"inlineData": {"mimeType": "application/pdf", "data": "YXBwbGljYXRpb24vcGRm"}},
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.org/a.mp4"}},
            {"text": "[unsupported content]"},
        ])
    );
}

/// The settings that are sent to a model.
fn settings(model: &str, generation: Generation) -> Value {
    let prompt = Prompt { generation, tools: vec![tool("look")], ..prompt(model, vec![user("?")]) };
    let mut body = body(&prompt);
    let body = body.as_object_mut().expect("an object");
    for content in ["contents", "tools"] {
        body.remove(content);
    }
    json!(body)
}

#[test]
fn settings_are_sent_under_the_names_of_the_service() {
    let generation = Generation {
        temperature: Temperature::new(0.5),
        top_p: TopP::new(0.25),
        top_k: Some(7),
        seed: Some(3),
        stop_sequences: vec!["END".to_owned()],
        tool_choice: Some(ToolChoice::Tool("look".to_owned())),
        response_format: Some(ResponseFormat {
            schema: Some(r#"{"type":"object"}"#.to_owned()),
            name: "answer".to_owned(),
            strict: None,
        }),
        ..Generation::default()
    };
    assert_eq!(
        settings(OLD, generation),
        json!({
            "generationConfig": {
                "temperature": 0.5, "topP": 0.25, "topK": 7, "seed": 3, "stopSequences": ["END"],
                "responseMimeType": "application/json", "responseJsonSchema": {"type": "object"},
            },
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
        })
    );
    for (choice, mode) in [(ToolChoice::Auto, "AUTO"), (ToolChoice::None, "NONE"), (ToolChoice::Required, "ANY")] {
        let generation = Generation { tool_choice: Some(choice), ..Generation::default() };
        let sent = settings(OLD, generation);
        assert_eq!(sent["toolConfig"]["functionCallingConfig"], json!({"mode": mode}));
    }
}

#[test]
fn each_generation_is_asked_to_think_in_its_own_way() {
    let budget = |tokens: u32| json!({"thinkingBudget": tokens, "includeThoughts": tokens > 0});
    let level = |level: &str| json!({"thinkingLevel": level, "includeThoughts": true});
    let none = || Value::Null;
    use ReasoningEffort::{High, Low, Max, Minimal};
    let off = ReasoningEffort::None;
    let table = [
        (OLD, Some(Low), None, budget(1_024)),
        (OLD, Some(Max), None, budget(24_576)),
        (OLD, Some(off), None, budget(0)),
        (OLD, Some(Low), Some(77), budget(77)),
        (OLD, None, None, none()),
        ("gemini-2.5-flash-lite", None, Some(7), budget(512)),
        ("gemini-2.5-pro", Some(off), None, budget(512)),
        ("gemini-2.5-pro", None, Some(5), budget(128)),
        (SIGNS, Some(Low), None, level("LOW")),
        (SIGNS, Some(High), None, level("HIGH")),
        (SIGNS, Some(Max), None, level("HIGH")),
        (SIGNS, Some(Minimal), None, level("LOW")),
        (SIGNS, Some(off), None, level("LOW")),
        (SIGNS, None, None, none()),
        ("gemini-2.0-flash", Some(off), None, none()),
    ];
    for (model, reasoning_effort, reasoning_budget_tokens, expected) in table {
        let wanted = Generation { reasoning_effort, reasoning_budget_tokens, ..Generation::default() };
        let fitted = options::nearest_supported(&ModelInfo::unknown(model), &wanted);
        let sent = settings(model, fitted);
        assert_eq!(sent["generationConfig"]["thinkingConfig"], expected, "{model} {wanted:?}");
    }
}

#[test]
fn options_of_the_provider_win_but_never_replace_what_is_said() {
    let options = json!({
        "gemini": {
            "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
            "generationConfig": {"mediaResolution": "MEDIA_RESOLUTION_LOW", "temperature": 2, "thinkingConfig": {"includeThoughts": false}},
            "toolConfig": {"functionCallingConfig": {"streamFunctionCallArguments": true}},
            "contents": [], "systemInstruction": {}, "tools": [], "model": "m",
        },
        "openai": {"store": true},
    });
    let generation = Generation {
        temperature: Temperature::new(0.5),
        top_k: Some(3),
        reasoning_effort: Some(ReasoningEffort::Low),
        tool_choice: Some(ToolChoice::Required),
        provider_options: Some(options.to_string()),
        ..Generation::default()
    };
    assert_eq!(
        settings(SIGNS, generation),
        json!({
            "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
            "generationConfig": {
                "temperature": 2, "topK": 3, "mediaResolution": "MEDIA_RESOLUTION_LOW",
                "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": false},
            },
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "streamFunctionCallArguments": true}},
        })
    );
}

#[test]
fn what_the_model_cannot_take_is_reported() {
    let refused = |model: &str, wanted: &Generation| -> Vec<Setting> {
        options::unsupported_settings(&ModelInfo::unknown(model), wanted)
            .into_iter()
            .map(|unsupported| unsupported.setting)
            .collect()
    };
    let everything = Generation {
        stop_sequences: vec!["a".to_owned(); 6],
        reasoning_effort: Some(ReasoningEffort::Low),
        reasoning_budget_tokens: Some(2_000),
        parallel_tool_calls: Some(false),
        temperature: Temperature::new(1.0),
        ..Generation::default()
    };
    assert_eq!(
        refused("gemini-2.0-flash", &everything),
        [Setting::StopSequences, Setting::ReasoningEffort, Setting::ReasoningBudget, Setting::ParallelToolCalls,]
    );
    assert_eq!(refused(OLD, &everything), [Setting::StopSequences, Setting::ParallelToolCalls]);
    assert_eq!(
        refused(SIGNS, &everything),
        [Setting::StopSequences, Setting::ReasoningBudget, Setting::ParallelToolCalls]
    );
}

#[test]
fn the_question_for_a_count_has_the_form_of_its_service() {
    let prompt = Prompt { system: vec!["Be brief.".to_owned()], ..prompt(OLD, vec![user("?")]) };
    let ask = |vertex: bool| -> Value {
        let question = encode::count_request(&prompt, &manner(OLD), vertex);
        serde_json::from_slice(&question).expect("JSON")
    };
    let mut content = json!({
        "contents": [content("user", &[text("?")])],
        "systemInstruction": {"parts": [text("Be brief.")]},
    });
    assert_eq!(ask(true), content);
    content["model"] = json!("models/gemini-2.5-flash");
    assert_eq!(ask(false), json!({"generateContentRequest": content}));
}
