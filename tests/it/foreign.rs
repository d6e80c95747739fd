//! AppendMessages.messages_json: imported conversations in the formats of other APIs, and the requests and exports made
//! from them.

use contextd::pb::{self, FieldReason, PromptFormat, part::Content};
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    harness::{
        Host, Options,
        errors::refusal,
        events::completed,
        host::{MODEL, answering},
        requests::{result, tools, turn},
        upstream::Upstream,
    },
    protocols::speaks::{Protocol, Says},
};

const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAUAAAADwCAIAAAAgYSBwaWN0dXJl";

/// A model that completes each turn immediately.
fn talks() -> Options {
    answering(&[json!([{"text": "Fine."}])])
}

pub(crate) fn append(session: &str, format: PromptFormat, messages: &Value) -> pb::AppendMessagesRequest {
    pb::AppendMessagesRequest {
        session_id: session.to_owned(),
        messages_json: messages.to_string(),
        messages_format: format.into(),
        ..pb::AppendMessagesRequest::default()
    }
}

/// The same conversation in each format: text, an image, reasoning, two calls and their results.
pub(crate) fn conversation(format: PromptFormat) -> Value {
    let asks = "What is this?";
    match format {
        PromptFormat::OpenaiChat => json!([
            {"role": "user", "content": [{"type": "text", "text": asks},
                {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PICTURE}")}}]},
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"at\":\"a\"}"}},
                {"id": "c2", "type": "function", "function": {"name": "list", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "A cat."},
            {"role": "tool", "tool_call_id": "c2", "content": "Two."},
            {"role": "assistant", "content": "Two cats."},
        ]),
        PromptFormat::Anthropic => json!([
            {"role": "user", "content": [{"type": "text", "text": asks},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Both.", "signature": "sig-import"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "a"}},
                {"type": "tool_use", "id": "c2", "name": "list", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "A cat."},
                {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "Two."}]}]},
            {"role": "assistant", "content": "Two cats."},
        ]),
        PromptFormat::OpenaiResponses => json!([
            {"role": "user", "content": [{"type": "input_text", "text": asks},
                {"type": "input_image", "image_url": format!("data:image/png;base64,{PICTURE}")}]},
            {"type": "reasoning", "id": "rs_import", "summary": [], "encrypted_content": "enc-import"},
            {"type": "message", "role": "assistant", "id": "msg_import", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "id": "fc_import", "call_id": "c1", "name": "look", "arguments": "{\"at\":\"a\"}"},
            {"type": "function_call", "call_id": "c2", "name": "list", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "A cat."},
            {"type": "function_call_output", "call_id": "c2", "output": "Two."},
            {"role": "assistant", "content": "Two cats."},
        ]),
        PromptFormat::Gemini => json!([
            {"role": "user", "parts": [{"text": asks}, {"inlineData": {"mimeType": "image/png", "data": PICTURE}}]},
            {"role": "model", "parts": [
                {"text": "I look."},
                {"functionCall": {"name": "look", "args": {"at": "a"}}, "thoughtSignature": "sig-import"},
                {"functionCall": {"name": "list", "args": {}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "look", "response": {"output": "A cat."}}},
                {"functionResponse": {"name": "list", "response": {"output": "Two."}}}]},
            {"role": "model", "parts": [{"text": "Two cats."}]},
        ]),
        PromptFormat::AiSdk
        | PromptFormat::AiSdk7
        | PromptFormat::Unspecified
        | PromptFormat::Neutral
        | PromptFormat::Native => json!([
            {"role": "user", "content": [{"type": "text", "text": asks},
                {"type": "image", "image": PICTURE, "mediaType": "image/png"}]},
            {"role": "assistant", "content": [
                {"type": "reasoning", "text": "Both.", "providerOptions": {
                    "anthropic": {"signature": "sig-import"}}},
                {"type": "text", "text": "I look."},
                {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {"at": "a"}},
                {"type": "tool-call", "toolCallId": "c2", "toolName": "list", "input": {}}]},
            {"role": "tool", "content": [
                {"type": "tool-result", "toolCallId": "c1", "toolName": "look", "output": {"type": "text", "value": "A cat."}},
                {"type": "tool-result", "toolCallId": "c2", "toolName": "list", "output": {"type": "text", "value": "Two."}}]},
            {"role": "assistant", "content": "Two cats."},
        ]),
    }
}

pub(crate) const FORMATS: [PromptFormat; 5] = [
    PromptFormat::OpenaiChat,
    PromptFormat::Anthropic,
    PromptFormat::OpenaiResponses,
    PromptFormat::Gemini,
    PromptFormat::AiSdk,
];

/// A summary of the content of a message.
pub(crate) fn outline(message: &pb::Message) -> String {
    let part = |part: &pb::Part| match &part.content {
        Some(Content::Text(text)) => text.clone(),
        Some(Content::Media(media)) => media.media_type.clone(),
        Some(Content::Reasoning(_)) => "thought".to_owned(),
        Some(Content::ToolCall(call)) => format!("{}({})", call.tool_name, call.arguments_json),
        Some(Content::ToolResult(result)) => {
            let given = result.parts.iter().map(|part| match &part.content {
                Some(Content::Text(text)) => text.clone(),
                _ => "?".to_owned(),
            });
            format!("{}: {}", result.tool_name, given.collect::<String>())
        }
        _ => "?".to_owned(),
    };
    let parts: Vec<String> = message.parts.iter().map(part).collect();
    format!("{:?} {}", message.role(), parts.join(" | "))
}

async fn create(host: &Host, session: &str, model: &str) {
    host.create(pb::Session {
        session_id: session.to_owned(),
        model: model.to_owned(),
        tools: tools(&["look", "list"]),
        ..pb::Session::default()
    })
    .await;
}

fn violations(status: &Status) -> Vec<(String, String)> {
    let refused = refusal(status);
    assert_eq!(refused.reason, "INVALID_REQUEST", "{status:?}");
    refused.fields
}

fn violation((field, reason): (&str, FieldReason)) -> (String, String) {
    let reason = reason.as_str_name().trim_start_matches("FIELD_REASON_");
    (field.to_owned(), reason.to_owned())
}

/// Row S15
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_in_any_shape_continues_over_any_protocol() {
    for protocol in Protocol::ALL {
        let upstream = Upstream::start().await;
        let provider = protocol.provider(&upstream);
        let host = Host::with(Options::default().provider(protocol.name(), provider)).await;
        for format in FORMATS {
            let session = format!("{format:?}");
            create(&host, &session, &protocol.model()).await;
            host.try_append(append(&session, format, &conversation(format))).await.unwrap();
            let listed: Vec<String> = host.messages(&session).await.iter().map(outline).collect();
            let listed = listed.join("\n").replace("thought | ", "");
            let results = match format {
                PromptFormat::OpenaiChat | PromptFormat::OpenaiResponses => "Tool look: A cat.\nTool list: Two.",
                _ => "Tool look: A cat. | list: Two.",
            };
            let expected = format!(
                "User What is this? | image/png\n\
                 Assistant I look. | look({{\"at\":\"a\"}}) | list({{}})\n\
                 {results}\n\
                 Assistant Two cats."
            );
            assert_eq!(listed, expected, "{session}");
            upstream.answer(protocol.answer(Says::default().text("So it is.")));
            let seen = host.run(turn(&session, &protocol.model(), "Sure?")).await;
            let reason = completed(&seen).reason();
            assert_eq!(reason, pb::CompletionReason::Stop, "{session}");
            let sent = upstream.requests().pop().unwrap();
            assert!(!sent.body.contains("-import"), "no one wrote it: {session}");
            assert_eq!(protocol.pictures(&sent.json), 1, "{session}");
            host.assert_counted(&session).await;
        }
    }
}

/// Rows S15 and D27
#[tokio::test(flavor = "multi_thread")]
async fn imported_reasoning_goes_back_to_the_model_that_is_named() {
    for protocol in [Protocol::Anthropic, Protocol::Responses, Protocol::Gemini] {
        let upstream = Upstream::start().await;
        let provider = protocol.provider(&upstream);
        let host = Host::with(Options::default().provider(protocol.name(), provider)).await;
        let model = reasons(protocol);
        for signature in ["sig-import", "enc-import"] {
            upstream.knows(signature);
        }
        for (session, wrote, goes_back) in [("own", model.as_str(), true), ("other", "elsewhere/large", false)] {
            create(&host, session, &model).await;
            let request = pb::AppendMessagesRequest {
                messages_model: wrote.to_owned(),
                ..append(session, protocol.format(), &conversation(protocol.format()))
            };
            host.try_append(request).await.unwrap();
            upstream.answer(protocol.answer(Says::default().text("So it is.")));
            host.run(turn(session, &model, "Sure?")).await;
            let sent = upstream.requests().pop().unwrap().body;
            assert_eq!(sent.contains("-import"), goes_back, "{model} from {wrote}");
        }
    }
}

/// A model of a protocol that accepts imported reasoning. Newer models of Anthropic bind reasoning to a prompt that is
/// not known here.
fn reasons(protocol: Protocol) -> String {
    match protocol {
        Protocol::Anthropic => "anthropic/claude-sonnet-4-5".to_owned(),
        Protocol::Chat | Protocol::Responses | Protocol::Gemini => protocol.model(),
    }
}

/// The messages of a request, without prompt cache markers.
fn messages_of(body: &Value) -> Value {
    fn unmark(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.remove("cache_control");
                object.values_mut().for_each(unmark);
            }
            Value::Array(items) => items.iter_mut().for_each(unmark),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let fields = ["messages", "input", "contents"];
    let mut messages = fields.iter().find_map(|field| body.get(field).cloned()).unwrap();
    unmark(&mut messages);
    messages
}

/// Row S15
#[tokio::test(flavor = "multi_thread")]
async fn what_a_service_was_sent_is_sent_the_same_after_its_import() {
    for protocol in Protocol::ALL {
        let upstream = Upstream::start().await;
        let provider = protocol.provider(&upstream);
        let host = Host::with(Options::default().provider(protocol.name(), provider)).await;
        let model = reasons(protocol);
        create(&host, "first", &model).await;
        let calls = Says::thinking("Both at once.").text("I look.");
        let calls = calls.call("c1", "look", &json!({"at": "a"}));
        upstream.answer(protocol.answer(calls.call("c2", "list", &json!({}))));
        let again = Says::thinking("Once more.").call("c3", "look", &json!({}));
        upstream.answer(protocol.answer(again));
        upstream.answer(protocol.answer(Says::default().text("Done.")));
        let gives = |call: &pb::ToolCall| result(&call.call_id, "A \"cat\".\n");
        host.run_with(turn("first", &model, "What is this?"), gives).await;
        let sent = messages_of(&upstream.requests().pop().unwrap().json);
        create(&host, "second", &model).await;
        let request =
            pb::AppendMessagesRequest { messages_model: model.clone(), ..append("second", protocol.format(), &sent) };
        host.try_append(request).await.unwrap();
        upstream.answer(protocol.answer(Says::default().text("Done.")));
        let go_on = pb::ExecuteTurnRequest {
            input: None,
            session: None,
            continue_transcript: true,
            ..turn("second", &model, "")
        };
        host.run(go_on).await;
        let again = messages_of(&upstream.requests().pop().unwrap().json);
        assert_eq!(again, sent, "{model}");
    }
}

/// Row S15
#[tokio::test(flavor = "multi_thread")]
async fn an_imported_conversation_is_rendered_for_the_ai_sdk() {
    let host = Host::with(talks()).await;
    create(&host, "s", MODEL).await;
    let mut came = conversation(PromptFormat::AiSdk);
    let denied = json!([
        {"role": "assistant", "content": [
            {"type": "tool-call", "toolCallId": "c3", "toolName": "look", "input": {}}]},
        {"role": "tool", "content": [
            {"type": "tool-result", "toolCallId": "c3", "toolName": "look",
                "output": {"type": "execution-denied", "reason": "Not now."}}]},
    ]);
    came.as_array_mut().unwrap().extend(items(&denied).iter().cloned());
    let request =
        pb::AppendMessagesRequest { messages_model: MODEL.to_owned(), ..append("s", PromptFormat::AiSdk, &came) };
    host.try_append(request).await.unwrap();
    let request = pb::RenderContextRequest {
        session_id: "s".to_owned(),
        format: PromptFormat::AiSdk.into(),
        ..pb::RenderContextRequest::default()
    };
    let rendered = host.contexts().render_context(request).await.unwrap();
    let shown = rendered.into_inner().prompt.unwrap().request_json;
    let request = pb::PrepareContextRequest {
        session_id: "s".to_owned(),
        format: PromptFormat::AiSdk.into(),
        ..pb::PrepareContextRequest::default()
    };
    let prepared = host.contexts().prepare_context(request).await.unwrap();
    assert_eq!(prepared.into_inner().prompt.unwrap().request_json, shown);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(items(&shown["messages"])[1..], items(&came)[1..]);
    assert_eq!(shown["tools"]["look"]["inputSchema"]["type"], json!("object"));
}

fn items(messages: &Value) -> &[Value] {
    messages.as_array().expect("an array")
}

/// Row S15
#[tokio::test(flavor = "multi_thread")]
async fn wrong_messages_of_another_api_are_refused_whole_with_their_places() {
    let host = Host::with(talks()).await;
    create(&host, "s", MODEL).await;
    let long = "x".repeat(1_100_000);
    let call = json!({"id": "c1", "type": "function", "function": {"name": "a b", "arguments": "{}"}});
    let good = json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let table = [
        (
            json!([{"role": "user", "content": [{"type": "text", "text": long}, {"type": "poem"}]},
                   {"role": "assistant", "tool_calls": [call]}]),
            vec![
                ("messages_json[0].content[1].type", FieldReason::Unsupported),
                ("messages_json[0].content[0]", FieldReason::TooLarge),
                ("messages_json[1].tool_calls[0]", FieldReason::Invalid),
            ],
        ),
        (
            json!([{"role": "tool", "tool_call_id": "c9", "content": "Seen."}]),
            vec![("messages_json[0]", FieldReason::Unknown)],
        ),
        (
            json!([{"role": "assistant", "content": "I look.", "tool_calls": [good]}, {"role": "user", "content": "Well?"}]),
            vec![("messages_json[0].tool_calls[0]", FieldReason::Invalid)],
        ),
        (json!([]), vec![("messages_json", FieldReason::Required)]),
        (json!({"messages": []}), vec![("messages_json", FieldReason::Invalid)]),
    ];
    for (messages, expected) in table {
        let refused = host.try_append(append("s", PromptFormat::OpenaiChat, &messages)).await.unwrap_err();
        let expected: Vec<_> = expected.into_iter().map(violation).collect();
        assert_eq!(violations(&refused), expected);
    }
    let item = json!([{"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}]}]);
    let request = append("s", PromptFormat::Anthropic, &item);
    let refused = host.try_append(request.clone()).await.unwrap_err();
    let expected = violation(("messages_model", FieldReason::Required));
    assert_eq!(violations(&refused), [expected]);
    let named = pb::AppendMessagesRequest { messages_model: "large".to_owned(), ..request };
    let refused = host.try_append(named).await.unwrap_err();
    assert_eq!(violations(&refused)[0].0, "messages_model");
    assert!(host.messages("s").await.is_empty());
}

/// Row S15
#[tokio::test(flavor = "multi_thread")]
async fn imported_instructions_at_the_beginning_are_pinned() {
    let host = Host::with(talks()).await;
    create(&host, "s", MODEL).await;
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi."},
        {"role": "developer", "content": "Be kind."},
    ]);
    let request = append("s", PromptFormat::OpenaiChat, &messages);
    let appended = host.try_append(request.clone()).await.unwrap();
    let listed = host.messages("s").await;
    let pinned: Vec<bool> = listed.iter().map(|message| message.pinned).collect();
    assert_eq!(pinned, [true, false, false]);
    assert_eq!(appended.message_ids.len(), 3);
}

/// Row S15
#[tokio::test(flavor = "multi_thread")]
async fn the_same_calls_without_ids_can_be_appended_again() {
    let host = Host::with(talks()).await;
    create(&host, "s", MODEL).await;
    let messages = json!([
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "A cat."}}}]},
    ]);
    let request = |id: &str| pb::AppendMessagesRequest {
        request_id: id.to_owned(),
        ..append("s", PromptFormat::Gemini, &messages)
    };
    let first = host.try_append(request("a")).await.unwrap();
    let again = host.try_append(request("a")).await.unwrap();
    assert_eq!(again.message_ids, first.message_ids, "the same request");
    host.try_append(request("b")).await.unwrap();
    assert_eq!(host.messages("s").await.len(), 4);
}
