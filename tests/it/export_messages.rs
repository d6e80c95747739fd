//! ExportMessages: the complete conversation in the formats of other APIs, with its cancels, compactions and pruned
//! results.

use contextd::pb::{self, CancelMode, MessageView, PromptFormat, part::Content};
use serde_json::Value;

use crate::{
    compaction::{answering, in_short, request, session},
    foreign::{FORMATS, append, conversation, outline},
    harness::{
        Host, Options,
        events::{all, turn_id, until_written},
        requests::{text, turn},
        transcripts::{ids, message, one_turn, says},
    },
};
use serde_json::json;

/// The formats of an export.
const SHAPES: [PromptFormat; 6] = [
    PromptFormat::OpenaiChat,
    PromptFormat::Anthropic,
    PromptFormat::OpenaiResponses,
    PromptFormat::Gemini,
    PromptFormat::AiSdk,
    PromptFormat::AiSdk7,
];

async fn export(host: &Host, session: &str, format: PromptFormat, page_size: i32) -> Vec<pb::ExportedMessage> {
    let mut messages = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = pb::ExportMessagesRequest {
            session_id: session.to_owned(),
            format: format.into(),
            page_size,
            page_token,
            ..pb::ExportMessagesRequest::default()
        };
        let page = host.sessions().export_messages(request).await.unwrap();
        let page = page.into_inner();
        assert!(page_size == 0 || page.messages.len() <= usize::try_from(page_size).unwrap());
        messages.extend(page.messages);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return messages;
        }
    }
}

/// The exported messages as one conversation.
fn joined(messages: &[pb::ExportedMessage]) -> Value {
    let elements = messages.iter().flat_map(|message| {
        let elements: Vec<Value> = serde_json::from_str(&message.messages_json).unwrap();
        elements
    });
    elements.collect()
}

/// The stored content of messages, without their ids.
fn stored(messages: &[pb::Message]) -> Vec<(pb::Role, String, Vec<pb::Part>)> {
    let of_one = |message: &pb::Message| {
        let mut parts = message.parts.clone();
        for part in &mut parts {
            part.tokens = None;
            // Gemini calls without ids get ids from contextd, which the export includes.
            if let Some(Content::ToolCall(call)) = &part.content {
                let own = format!(r#""id":"{}","#, call.call_id);
                part.provider_metadata_json = part.provider_metadata_json.replace(&own, "");
                let alone = format!(r#"{{"gemini":{{"id":"{}"}}}}"#, call.call_id);
                if part.provider_metadata_json == alone {
                    part.provider_metadata_json.clear();
                }
            }
            if let Some(Content::ToolResult(result)) = &mut part.content {
                result.parts.iter_mut().for_each(|part| part.tokens = None);
            }
        }
        let response = message.response.clone().unwrap_or_default();
        (message.role(), response.model, parts)
    };
    messages.iter().map(of_one).collect()
}

/// Row S15
#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_imported_again_as_the_same_conversation_in_every_shape() {
    let host = Host::with(Options::default()).await;
    for format in FORMATS {
        let from = format!("from {format:?}").replace(' ', "-");
        let to = format!("to {format:?}").replace(' ', "-");
        for session in [&from, &to] {
            let session_id = session.clone();
            host.create(pb::Session { session_id, ..pb::Session::default() }).await;
        }
        let messages_model = "main/model".to_owned();
        let import = pb::AppendMessagesRequest {
            messages_model: messages_model.clone(),
            ..append(&from, format, &conversation(format))
        };
        host.try_append(import).await.unwrap();
        let exported = export(&host, &from, format, 2).await;
        assert!(exported.iter().all(|message| message.notes.is_empty()));
        let models: Vec<&str> = exported
            .iter()
            .filter(|message| message.role() == pb::Role::Assistant)
            .map(|message| message.model.as_str())
            .collect();
        assert_eq!(models, ["main/model", "main/model"], "{format:?}");
        let import = pb::AppendMessagesRequest { messages_model, ..append(&to, format, &joined(&exported)) };
        host.try_append(import).await.unwrap();
        let (before, after) = (host.messages(&from).await, host.messages(&to).await);
        assert_eq!(stored(&after), stored(&before), "{format:?}");
    }
}

/// Row S15
#[tokio::test(flavor = "multi_thread")]
async fn an_export_has_everything_that_was_said_and_tells_what_became_of_it() {
    let host = Host::with(answering(&[json!([{"text": "We"}, {"stall": true}])], &in_short())).await;
    let policy = pb::CompactionPolicy::default();
    session(&host, 100_000, policy, &[1_000; 5]).await;
    host.contexts().compact(request("k")).await.unwrap();
    let prune = pb::PruneToolOutputsRequest {
        session_id: "s".to_owned(),
        minimum_tokens: Some(0),
        protect_tokens: Some(0),
        protect_turns: Some(0),
        ..Default::default()
    };
    host.contexts().prune_tool_outputs(prune).await.unwrap();
    let mut stream = host.execute(turn("s", "", "Never mind.")).await;
    let head = until_written(&mut stream, "We").await;
    let cancel = pb::CancelTurnRequest {
        session_id: "s".to_owned(),
        turn_id: turn_id(&head),
        mode: CancelMode::Rollback.into(),
        ..pb::CancelTurnRequest::default()
    };
    host.turns().cancel_turn(cancel).await.unwrap();
    all(&mut stream).await;

    let listed = host.listed("s", MessageView::All, 0, false, 100).await;
    for format in SHAPES {
        let exported = export(&host, "s", format, 3).await;
        let marks: Vec<(&str, i64, bool, &str, i64)> = exported
            .iter()
            .map(|it| (it.message_id.as_str(), it.seq, it.is_summary, it.compacted_by.as_str(), it.voided_at_seq))
            .collect();
        let expected: Vec<(&str, i64, bool, &str, i64)> = listed
            .iter()
            .map(|it| (it.message_id.as_str(), it.seq, it.is_summary, it.compacted_by.as_str(), it.voided_at_seq))
            .collect();
        assert_eq!(marks, expected, "{format:?}");
        assert!(marks.iter().any(|(_, _, is_summary, _, _)| *is_summary));
        assert!(marks.iter().any(|(_, _, _, by, _)| !by.is_empty()));
        assert!(marks.iter().any(|(_, _, _, _, voided)| *voided > 0));
        let pruned: Vec<&String> = exported.iter().flat_map(|it| &it.pruned_call_ids).collect();
        assert!(!pruned.is_empty(), "{format:?}");
        for message in exported.iter().filter(|it| !it.pruned_call_ids.is_empty()) {
            assert!(!message.messages_json.contains("cleared"), "{format:?}: pruned results are whole");
        }
        let kept = |message: &&pb::ExportedMessage| !message.is_summary && message.voided_at_seq == 0;
        let said: Vec<pb::ExportedMessage> = exported.iter().filter(kept).cloned().collect();
        let again = format!("again-{format:?}");
        host.create(pb::Session { session_id: again.clone(), ..pb::Session::default() }).await;
        let request = append(&again, format, &joined(&said));
        host.try_append(request).await.unwrap();
        let outlines = |messages: &[pb::Message]| -> Vec<String> {
            let valid = messages.iter().filter(|it| !it.is_summary && it.voided_at_seq == 0);
            valid.map(outline).collect()
        };
        assert_eq!(outlines(&host.messages(&again).await), outlines(&listed), "{format:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_beyond_1_mib_is_exported_as_a_blob() {
    let options = Options::default().script("it", r#"{"steps": [{"say": [{"text": "Fine."}]}]}"#.to_owned());
    let host = Host::with(options).await;
    host.with_turns("s", &[]).await;
    let large = message(pb::Role::User, vec![text(&"a".repeat(900 * 1024)), text(&"b".repeat(900 * 1024))]);
    host.append("s", vec![large, says(pb::Role::User, "Well?")]).await;
    host.append("s", one_turn("c", 10)).await;
    let exported = export(&host, "s", PromptFormat::OpenaiChat, 0).await;
    assert_eq!(ids(&host.messages("s").await).len(), exported.len());
    let blob = exported[0].messages_blob.clone().unwrap();
    assert_eq!((exported[0].messages_json.as_str(), blob.media_type.as_str()), ("", "application/json"));
    let request = pb::GetBlobRequest { blob_id: blob.blob_id, ..pb::GetBlobRequest::default() };
    let (_, content) = host.replica.blob(request).await;
    let whole: Value = serde_json::from_slice(&content).unwrap();
    assert_eq!(whole[0]["content"][1]["text"].as_str().map(str::len), Some(900 * 1024));
    assert!(exported[1..].iter().all(|it| it.messages_blob.is_none()));
}
