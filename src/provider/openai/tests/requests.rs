//! Tests of prompts encoded as request bodies.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{
    context::testing::{self, message, user},
    model::{Content, Generation, Message, ModelResponse, Prompt, Role, Tool, ToolCall, ToolOutcome, ToolResult},
    provider::openai::{encode, encode_options::EncodeOptions},
};

/// A message by `main/gpt`.
fn assistant(parts: Vec<Part>) -> Message {
    let response = ModelResponse {
        provider: "main".to_owned(),
        model: "main/gpt".to_owned(),
        provider_model: String::new(),
        provider_response_id: String::new(),
        finish: FinishReason::Stop,
        provider_finish: String::new(),
        usage: None,
        failure: None,
        time_to_first_token: None,
        elapsed: Duration::ZERO,
        provider_metadata: None,
        prompt_fingerprint: None,
    };
    Message { response: Some(response), ..message(Role::Assistant, parts) }
}

fn results(results: Vec<(&str, ToolOutcome, &[&str])>) -> Message {
    let part = |(call, outcome, texts): (&str, ToolOutcome, &[&str])| {
        let parts = texts.iter().map(|text| (*text).into()).collect();
        let call = CallId::new(call);
        let name = "look".to_owned();
        Part::new(Content::ToolResult(ToolResult {
            call,
            name,
            parts,
            outcome,
            truncation: None,
            display_text: String::new(),
        }))
    };
    message(Role::Tool, results.into_iter().map(part).collect())
}

fn call(id: &str, arguments: &str) -> Part {
    let id = CallId::new(id);
    let name = "look".to_owned();
    Part::new(Content::ToolCall(ToolCall { id, name, arguments: arguments.to_owned() }))
}

fn reasoning(text: &str, metadata: Option<Value>) -> Part {
    let content = Content::Reasoning { text: text.to_owned(), redacted: text.is_empty() };
    Part { provider_metadata: metadata.map(|json| json.to_string()), ..Part::new(content) }
}

fn prompt(messages: Vec<Message>) -> Prompt {
    Prompt { model: "gpt".to_owned(), ..testing::prompt(messages) }
}

fn tool(schema: Option<&str>, strict: Option<bool>) -> Tool {
    Tool { input_schema: schema.map(str::to_owned), strict, ..testing::tool("look") }
}

pub(in crate::provider::openai) fn body(dialect: &str, prompt: &Prompt) -> Value {
    let form =
        EncodeOptions { dialect: dialect::named(dialect).expect("a dialect"), provider: "main", developer: false };
    serde_json::from_slice(&encode::request(prompt, form).0.body).expect("JSON")
}

fn sent(dialect: &str, messages: Vec<Message>) -> Value {
    body(dialect, &prompt(messages))["messages"].take()
}

pub(in crate::provider::openai) fn asked(generation: Generation, tools: bool) -> Prompt {
    let tools = if tools { vec![tool(None, None)] } else { Vec::new() };
    Prompt { generation, tools, ..prompt(vec![user("Hello")]) }
}

#[test]
fn a_whole_request_is_what_the_service_documents() {
    let prompt = Prompt {
        system: vec!["Be brief.".to_owned()],
        tools: vec![
            tool(Some(r#"{"type":"object","properties":{"n":{"type":"number","maximum":1.50}}}"#), Some(true)),
            tool(None, None),
        ],
        max_output_tokens: Some(99),
        ..prompt(vec![
            user("Look twice."),
            assistant(vec![
                reasoning("Hm.", None),
                Part::text("I "),
                Part::text("look."),
                call("a", r#"{"n": 1}"#),
                call("b", "{}"),
            ]),
            results(vec![("a", ToolOutcome::Success, &["one", "two"]), ("b", ToolOutcome::Error, &["broken"])]),
        ])
    };
    let look = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}});
    let parameters = json!({"type": "object", "properties": {"n": {"type": "number", "maximum": 1.5}}});
    assert_eq!(
        body("openai", &prompt),
        json!({
            "model": "gpt",
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_completion_tokens": 99,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Look twice."},
                {"role": "assistant", "content": "I look.", "tool_calls": [look("a", "{\"n\": 1}"), look("b", "{}")]},
                {"role": "tool", "tool_call_id": "a", "content": "one\ntwo"},
                {"role": "tool", "tool_call_id": "b", "content": "Error: broken"},
            ],
            "tools": [
                {"type": "function", "function": {"name": "look", "description": "Does look.", "parameters": parameters, "strict": true}},
                {"type": "function", "function": {"name": "look", "description": "Does look.", "parameters": {"type": "object", "properties": {}}}},
            ],
        })
    );
    let form =
        EncodeOptions { dialect: dialect::named("openai").expect("a dialect"), provider: "main", developer: true };
    let text = String::from_utf8(encode::request(&prompt, form).0.body).expect("UTF-8");
    assert!(text.contains(r#"{"role":"developer","content":"Be brief."}"#));
    assert!(text.contains(r#""maximum":1.50"#), "the schema goes out as the host wrote it");
}

#[test]
fn fields_follow_the_dialect() {
    let prompt = Prompt { max_output_tokens: Some(9), ..prompt(vec![user("Hello")]) };
    for dialect in dialect::DIALECTS {
        let body = body(dialect.name, &prompt);
        let limit = if dialect.name == "openai" { "max_completion_tokens" } else { "max_tokens" };
        assert_eq!(body[limit], 9, "{}", dialect.name);
        assert_eq!(body.get("stream_options").is_some(), dialect.name != "mistral", "{}", dialect.name);
        assert_eq!(body.as_object().map(|fields| fields.len()), Some(if dialect.name == "mistral" { 4 } else { 5 }));
    }
}

#[test]
fn empty_messages_are_never_sent() {
    let messages = vec![
        user(""),
        user("Hello"),
        assistant(vec![reasoning("Hm.", None), Part::text("")]),
        message(Role::User, vec![Part::text("one"), Part::text(""), Part::text("two")]),
        message(Role::System, vec![Part::text("Now in French.")]),
        assistant(vec![call("a", "")]),
        results(vec![("a", ToolOutcome::Success, &[])]),
    ];
    assert_eq!(
        sent("openai", messages),
        json!([
            {"role": "user", "content": "Hello"},
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            {"role": "system", "content": "Now in French."},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": ""},
        ])
    );
}

#[test]
fn the_status_of_a_call_is_in_the_text_of_its_result() {
    let table: [(ToolOutcome, &[&str], &str); 7] = [
        (ToolOutcome::Success, &["fine"], "fine"),
        (ToolOutcome::Error, &["no such file"], "Error: no such file"),
        (ToolOutcome::Error, &[], "Error"),
        (ToolOutcome::Denied, &["not today"], "Denied: not today"),
        (ToolOutcome::Denied, &[], "Denied"),
        (ToolOutcome::TimedOut, &["[No result came in time.]"], "[No result came in time.]"),
        (ToolOutcome::Cancelled, &["[Closed.]"], "[Closed.]"),
    ];
    for (outcome, texts, expected) in table {
        let messages = vec![assistant(vec![call("a", "{}")]), results(vec![("a", outcome, texts)])];
        assert_eq!(sent("openai", messages)[1]["content"], expected, "{outcome:?}");
    }
}

#[test]
fn a_refusal_goes_back_in_its_field_or_as_text() {
    let refused = || vec![assistant(vec![Part::new(Content::Refusal("No.".to_owned()))])];
    assert_eq!(sent("openai", refused()), json!([{"role": "assistant", "content": null, "refusal": "No."}]));
    assert_eq!(sent("groq", refused()), json!([{"role": "assistant", "content": "No."}]));
}

#[test]
fn arguments_that_are_not_an_object_are_sent_as_an_empty_object() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let exact = ["{\"a\":1}", "{\"n\": 1e999}", &deep, r#"{"s":"\ud83d"}"#, r#"{"\udc00": 1.50 }"#, " {} "];
    let exact = exact.map(|written| (written, written));
    let others = [("{\"a\":", "{}"), ("[1]", "{}"), ("\"a\"", "{}"), ("", "{}"), ("{} {}", "{}"), ("{a:1}", "{}")];
    for (written, expected) in exact.into_iter().chain(others) {
        let messages = vec![assistant(vec![call("a", written)]), results(vec![("a", ToolOutcome::Error, &[])])];
        assert_eq!(sent("openai", messages)[0]["tool_calls"][0]["function"]["arguments"], expected, "{written}");
    }
}

#[test]
fn reasoning_is_sent_back_only_where_the_service_expects_it() {
    let details = json!([{"type": "reasoning.text", "index": 0, "text": "Hm.", "signature": "s"}]);
    let more = json!([{"type": "reasoning.encrypted", "index": 1, "data": "x"}]);
    let attached = |details: &Value| Some(json!({"openai": {"reasoning_details": details}}));
    let messages = || {
        let early = assistant(vec![reasoning("Old.", attached(&details)), Part::text("Early.")]);
        let late =
            assistant(vec![reasoning("Hm.", attached(&details)), call("a", "{}"), reasoning("", attached(&more))]);
        vec![user("One."), early, user("Two."), late, results(vec![("a", ToolOutcome::Success, &[])])]
    };
    let of = |dialect: &str, field: &str| {
        let sent = sent(dialect, messages());
        [1, 3].map(|at| sent[at].get(field).cloned().unwrap_or_default())
    };
    assert_eq!(of("deepseek", "reasoning_content"), [Value::Null, json!("Hm.")]);
    assert_eq!(of("deepseek", "reasoning_details"), [Value::Null, Value::Null]);
    assert_eq!(of("openrouter", "reasoning_content"), [Value::Null, Value::Null]);
    assert_eq!(of("openrouter", "reasoning_details"), [details.clone(), json!([details[0], more[0]])]);
    assert_eq!(of("openai", "reasoning_content"), [Value::Null, Value::Null]);
    assert_eq!(of("openai", "reasoning_details"), [Value::Null, Value::Null]);

    let mut others = messages();
    for (provider, model) in [("other", "other/gpt"), ("main", "main/another")] {
        let response = others[3].response.as_mut().expect("a response");
        (response.provider, response.model) = (provider.to_owned(), model.to_owned());
        let sent = sent("openrouter", others.clone());
        assert_eq!(sent[3].get("reasoning_details"), None, "what {model} wrote means nothing to main/gpt");
    }
}

#[test]
fn a_signature_is_sent_back_with_its_call() {
    let extra = json!({"google": {"thought_signature": "s"}});
    let metadata = Some(json!({"openai": {"extra_content": extra}}).to_string());
    let signed = Part { provider_metadata: metadata, ..call("a", "{}") };
    let messages = vec![user("Go."), assistant(vec![signed]), results(vec![("a", ToolOutcome::Success, &[])])];
    assert_eq!(sent("compatible", messages)[1]["tool_calls"][0]["extra_content"], extra);
}

#[test]
fn call_ids_are_rewritten_for_the_service_and_stay_unique() {
    let long = "x".repeat(41);
    let messages = || {
        let ids = ["call_1", "with space", &long, "123456789"];
        let calls = ids.iter().map(|id| call(id, "{}")).collect();
        let given = ids.iter().map(|id| (*id, ToolOutcome::Success, &[] as &[&str])).collect();
        vec![user("Go."), assistant(calls), results(given)]
    };
    let ids = |dialect: &str| -> Vec<String> {
        let sent = sent(dialect, messages());
        let calls = sent[1]["tool_calls"].as_array().expect("calls");
        let results = sent.as_array().expect("messages")[2..].iter();
        for (call, result) in calls.iter().zip(results) {
            assert_eq!(call["id"], result["tool_call_id"]);
        }
        calls.iter().map(|call| call["id"].as_str().expect("an id").to_owned()).collect()
    };
    let short = ids("openai");
    assert_eq!((short[0].as_str(), short[3].as_str()), ("call_1", "123456789"));
    assert!(short[1..3].iter().all(|id| id.starts_with("call_") && id.len() == 37), "{short:?}");
    let nine = ids("mistral");
    assert_eq!(nine[3], "123456789");
    assert!(nine.iter().all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())), "{nine:?}");
    for ids in [&short, &nine] {
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{ids:?}");
    }
}

#[test]
fn mistral_gets_an_assistant_message_between_a_result_and_the_user() {
    let messages = || {
        vec![
            user("Go."),
            assistant(vec![call("123456789", "{}")]),
            results(vec![("123456789", ToolOutcome::Success, &[])]),
            user("And?"),
        ]
    };
    let roles = |dialect: &str| -> Vec<String> {
        let sent = sent(dialect, messages());
        sent.as_array()
            .expect("messages")
            .iter()
            .map(|message| message["role"].as_str().expect("a role").to_owned())
            .collect()
    };
    assert_eq!(roles("mistral"), ["user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(roles("openai"), ["user", "assistant", "tool", "user"]);
}
