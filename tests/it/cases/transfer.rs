//! Data that is transferred in one message: responses that clients can receive, and conversations of other programs.

use contextd::pb::{self, PromptFormat, part::Content};
use prost::Message as _;
use prost_types::FieldMask;
use serde_json::{Value, json};
use tonic::Code;

use crate::harness::{
    Host, Options,
    errors::refusal,
    events::{calls_made, until_action},
    host::{MODEL, answering, call},
    requests::{approve, careful, decide, enqueue, text, tool, turn},
};

/// Bytes of a response that every client accepts: the default limit of gRPC is 4 MiB.
const MOST: usize = 3 * 1024 * 1024;
const MIB: usize = 1024 * 1024;

fn large_blocks() -> Vec<pb::PinnedBlock> {
    let block = |number: usize| pb::PinnedBlock {
        name: format!("block {number}"),
        text: "b".repeat(250 * 1024),
        ..pb::PinnedBlock::default()
    };
    (0..14).map(block).collect()
}

fn large_tools() -> pb::ToolSet {
    let described = |number: usize| pb::Tool {
        input_schema: Some(pb::JsonSchema {
            schema: Some(pb::json_schema::Schema::Json(format!(
                r#"{{"type":"object","description":"{}"}}"#,
                "t".repeat(200 * 1024)
            ))),
        }),
        ..tool(&format!("tool_{number}"))
    };
    pb::ToolSet { host_tools: (0..15).map(described).collect(), ..pb::ToolSet::default() }
}

/// An update of one field.
fn change(path: &str, session: pb::Session) -> pb::UpdateSessionRequest {
    pb::UpdateSessionRequest {
        session: Some(session),
        update_mask: Some(FieldMask { paths: vec![path.to_owned()] }),
        ..pb::UpdateSessionRequest::default()
    }
}

fn session(id: &str) -> pb::Session {
    pb::Session { session_id: id.to_owned(), ..pb::Session::default() }
}

/// The configuration in the blob of a session.
async fn configuration(host: &Host, session: &pb::Session) -> Value {
    let blob = session.configuration_blob.as_ref().unwrap();
    assert_eq!(blob.media_type, "application/json");
    assert!(session.system_prompt.is_empty() && session.pinned_blocks.is_empty());
    assert_eq!(session.tools, None);
    let request = pb::GetBlobRequest { blob_id: blob.blob_id.clone(), ..pb::GetBlobRequest::default() };
    let (found, content) = host.replica.blob(request).await;
    assert_eq!(found.size_bytes, blob.size_bytes);
    serde_json::from_slice(&content).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn s02_answers_with_a_large_configuration_stay_below_3_mib() {
    let host = Host::with(Options::default()).await;
    let mut sessions = host.sessions();
    let with_blocks = pb::Session {
        pinned_blocks: large_blocks(),
        metadata: [("chat".to_owned(), "17".to_owned())].into(),
        ..session("s")
    };
    let created = sessions
        .create_session(pb::CreateSessionRequest { session: Some(with_blocks), ..pb::CreateSessionRequest::default() })
        .await
        .unwrap()
        .into_inner();
    assert!(created.encoded_len() < MOST);
    let with_prompt = pb::Session { system_prompt: "p".repeat(MIB), ..session("s") };
    let request = change("system_prompt", with_prompt);
    let updated = sessions.update_session(request).await.unwrap().into_inner();
    assert!(updated.encoded_len() < MOST);
    let with_tools = pb::Session { tools: Some(large_tools()), ..session("s") };
    let request = change("tools", with_tools);
    let updated = sessions.update_session(request).await.unwrap().into_inner();
    assert!(updated.encoded_len() < MOST);
    let get = pb::GetSessionRequest { session_id: "s".to_owned() };
    let read = sessions.get_session(get).await.unwrap().into_inner();
    assert!(read.encoded_len() < MOST);
    let fork = pb::ForkSessionRequest { session_id: "s".to_owned(), ..pb::ForkSessionRequest::default() };
    let forked = sessions.fork_session(fork).await.unwrap().into_inner();
    assert!(forked.encoded_len() < MOST);

    for session in [updated.session, read.session, forked.session] {
        let session = session.unwrap();
        assert_eq!(session.metadata["chat"], "17", "all else is there");
        let whole = configuration(&host, &session).await;
        assert_eq!(whole["systemPrompt"], "p".repeat(MIB));
        let blocks = whole["pinnedBlocks"].as_array().unwrap();
        assert_eq!(blocks.len(), 14);
        assert_eq!(blocks[13]["text"], "b".repeat(250 * 1024));
        let tools = whole["tools"]["hostTools"].as_array().unwrap();
        assert_eq!(tools.len(), 15);
        assert!(tools[14]["inputSchema"]["json"].is_string());
        assert_eq!(whole.as_object().unwrap().len(), 3, "{:?}", whole);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s02_a_session_that_was_read_without_its_large_fields_does_not_lose_them_when_it_is_sent_back() {
    let host = Host::with(Options::default()).await;
    let mut sessions = host.sessions();
    let large = pb::Session { pinned_blocks: large_blocks(), ..session("s") };
    host.create(large).await;
    let mut read = host.session("s").await;
    read.metadata = [("chat".to_owned(), "17".to_owned())].into();
    let back = pb::UpdateSessionRequest { session: Some(read.clone()), ..pb::UpdateSessionRequest::default() };
    let updated = sessions.update_session(back).await.unwrap().into_inner();
    let updated = updated.session.unwrap();
    assert_eq!(updated.metadata["chat"], "17");
    assert_eq!(updated.configuration_blob, read.configuration_blob);

    let copy = pb::CreateSessionRequest {
        session: Some(pb::Session { session_id: "copy".to_owned(), ..read.clone() }),
        ..pb::CreateSessionRequest::default()
    };
    let refused = [
        sessions.update_session(change("pinned_blocks", read)).await.unwrap_err(),
        sessions.create_session(copy).await.unwrap_err(),
    ];
    for status in refused {
        let refused = refusal(&status);
        assert_eq!(refused.code, Code::InvalidArgument);
        let names = |field: &str| refused.fields.iter().any(|(path, _)| path == field);
        assert!(names("session.pinned_blocks"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s02_turns_whose_approved_arguments_are_large_stay_below_3_mib() {
    const CALLS: usize = 20;
    let host = Host::with(answering(&[json!(vec![call("send"); CALLS])])).await;
    let mut request = turn("s", MODEL, "Hello");
    request.tools = Some(pb::ToolSet { host_tools: vec![careful("send")], ..pb::ToolSet::default() });
    let mut stream = host.execute(request).await;
    let (head, _) = until_action(&mut stream).await;
    let calls = calls_made(&head);
    assert_eq!(calls.len(), CALLS);
    let arguments = format!(r#"{{"a":"{}"}}"#, "x".repeat(255 * 1024));
    for some in calls.chunks(10) {
        let edited = |id: &String| pb::Approval { edited_arguments_json: arguments.clone(), ..approve(id) };
        let approvals = some.iter().map(edited).collect();
        host.turns().submit_tool_results(decide("s", approvals)).await.unwrap();
    }
    let id = host.session("s").await.current_turn_id;
    let turn = host.turn("s", &id).await;
    assert!(turn.encoded_len() < MOST, "{}", turn.encoded_len());
    assert_eq!(turn.pending_calls.len(), CALLS);
    let mut by_reference = 0;
    for pending in &turn.pending_calls {
        let call = pending.call.as_ref().unwrap();
        let Some(blob) = &call.arguments_blob else {
            assert_eq!(call.arguments_json, arguments);
            continue;
        };
        by_reference += 1;
        let request = pb::GetBlobRequest { blob_id: blob.blob_id.clone(), ..pb::GetBlobRequest::default() };
        let (_, content) = host.replica.blob(request).await;
        assert_eq!(content, arguments.as_bytes());
    }
    assert!(by_reference > 0);
    let list = pb::ListTurnsRequest { session_id: "s".to_owned(), ..pb::ListTurnsRequest::default() };
    let listed = host.turns().list_turns(list).await.unwrap().into_inner();
    assert_eq!(listed.turns[0].pending_calls, turn.pending_calls);
}

#[tokio::test(flavor = "multi_thread")]
async fn s02_large_queued_messages_are_shown_with_previews() {
    let host = Host::with(Options::default()).await;
    host.create(session("s")).await;
    let mut request = enqueue("s", "");
    request.message = Some(pb::InputMessage { parts: vec![text(&"q".repeat(MIB)); 3], ..pb::InputMessage::default() });
    let queued = host.enqueue(request).await;
    assert!(queued.encoded_len() < MOST);
    let shown = queued.queued_message.unwrap();
    let listed = host.queued("s").await;
    let parts = |message: &pb::QueuedMessage| message.message.clone().unwrap().parts;
    assert_eq!(parts(&listed[0]), parts(&shown));
    let id = &shown.queued_message_id;
    let cancelled = host.cancel_queued("s", id).await;
    assert_eq!(parts(&cancelled), parts(&shown));
    let blob = parts(&shown)[0].preview_of.clone().unwrap();
    assert_eq!(blob.size_bytes, i64::try_from(MIB).unwrap());
}

fn json_of(format: PromptFormat, messages: &Value) -> pb::AppendMessagesRequest {
    pb::AppendMessagesRequest {
        session_id: "s".to_owned(),
        messages_json: messages.to_string(),
        messages_format: format.into(),
        ..pb::AppendMessagesRequest::default()
    }
}

/// A summary of messages: role, tool calls and results, text.
fn short(messages: &[pb::Message]) -> Vec<String> {
    let of_part = |part: &pb::Part| match &part.content {
        Some(Content::Text(text)) => text.clone(),
        Some(Content::ToolCall(call)) => format!("calls {}", call.tool_name),
        Some(Content::ToolResult(result)) => match &result.parts[0].content {
            Some(Content::Text(text)) => format!("{} gave {text}", result.tool_name),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let of_message = |message: &pb::Message| {
        let parts: Vec<String> = message.parts.iter().map(of_part).collect();
        format!("{}: {}", message.role().as_str_name(), parts.join(", "))
    };
    messages.iter().map(of_message).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn f04_results_that_come_after_other_messages_follow_their_calls() {
    let host = Host::with(Options::default()).await;
    host.create(session("s")).await;
    let rollout = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "plan", "arguments": "{}"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Approvals are off."}]},
        {"type": "function_call_output", "call_id": "c1", "output": "files"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hurry."}]},
        {"type": "function_call_output", "call_id": "c2", "output": "done"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well."}]},
    ]);
    host.sessions().append_messages(json_of(PromptFormat::OpenaiResponses, &rollout)).await.unwrap();
    assert_eq!(
        short(&host.messages("s").await),
        [
            "ROLE_USER: Look.",
            "ROLE_ASSISTANT: calls shell, calls plan",
            "ROLE_TOOL: shell gave files",
            "ROLE_TOOL: plan gave done",
            "ROLE_SYSTEM: Approvals are off.",
            "ROLE_USER: Hurry.",
            "ROLE_ASSISTANT: Well.",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn f04_calls_whose_ids_come_again_get_ids_of_their_own() {
    let host = Host::with(Options::default()).await;
    host.create(session("s")).await;
    let calls = |name: &str| {
        let function = json!({"name": name, "arguments": "{}"});
        json!({"role": "assistant", "tool_calls": [{"id": "call_0", "type": "function", "function": function}]})
    };
    let gave = |words: &str| json!({"role": "tool", "tool_call_id": "call_0", "content": words});
    let twice = json!([
        calls("look"),
        gave("a cat"),
        {"role": "user", "content": "Again."},
        calls("list"),
        gave("two cats"),
    ]);
    for _ in 0..2 {
        host.sessions().append_messages(json_of(PromptFormat::OpenaiChat, &twice)).await.unwrap();
    }
    let messages = host.messages("s").await;
    let once = [
        "ROLE_ASSISTANT: calls look",
        "ROLE_TOOL: look gave a cat",
        "ROLE_USER: Again.",
        "ROLE_ASSISTANT: calls list",
        "ROLE_TOOL: list gave two cats",
    ];
    assert_eq!(short(&messages), [once, once].concat());
    let ids = |message: &pb::Message| match &message.parts[0].content {
        Some(Content::ToolCall(call)) => Some(call.call_id.clone()),
        _ => None,
    };
    let ids: Vec<String> = messages.iter().filter_map(ids).collect();
    assert_eq!(ids[0], "call_0", "the first keeps its own");
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), 4, "{ids:?}");
    host.assert_counted("s").await;
}
