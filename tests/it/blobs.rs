//! Large content: events and pages stay within the message size that clients accept, and the complete content can be
//! read as a blob, also by range.

use contextd::pb::{self, blob_service_client::BlobServiceClient, event::Payload, part::Content};
use prost::Message as _;
use tonic::Code;

use crate::harness::{
    Options, Replica,
    events::{all, messages, requested, until},
    requests::{result, submit, tools, turn},
};

/// Maximum bytes of an event.
const MOST: usize = 1024 * 1024;
/// Tool calls in one response.
const CALLS: usize = 40;

/// A model that makes this many `look` calls at once, then completes.
fn many_calls(calls: usize) -> String {
    let call = r#"{"tool_call":{"name":"look","arguments":{}}}"#;
    let calls = vec![call; calls].join(",");
    format!(r#"{{"steps":[{{"when":{{"call":0}},"say":[{calls}]}},{{"say":[{{"text":"done"}}]}}]}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_large_results_are_previewed_in_one_event_and_kept_whole_as_blobs() {
    let (_database, replica) = Replica::alone(Options::default().script("many", many_calls(CALLS))).await;
    let mut turns = replica.turns().await;
    let mut request = turn("large", "scripted/many", "look");
    request.tools = tools(&["look"]);
    // Results that are cleared at the end of the turn would be listed as cleared.
    let kept = pb::PrunePolicy { mode: pb::PruneMode::OnOverflow.into(), ..pb::PrunePolicy::default() };
    let overrides = pb::Policy { prune: Some(kept), ..pb::Policy::default() };
    request.session = Some(pb::Session { policy_overrides: Some(overrides), ..pb::Session::default() });
    let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
    let first = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let calls = requested(&first);
    assert_eq!(calls.len(), CALLS);
    let output = |index: usize| format!("{index:03}").repeat(119_000 / 3);
    for (index, chunk) in calls.chunks(10).enumerate() {
        let results = (0..).zip(chunk).map(|(n, call)| result(call, &output(index * 10 + n))).collect();
        turns.submit_tool_results(submit("large", results)).await.unwrap();
    }
    let rest = all(&mut stream).await;
    assert!(rest.iter().all(|event| event.encoded_len() <= MOST), "an event is too large");

    let committed = messages(&rest).into_iter().find(|message| message.role() == pb::Role::Tool).unwrap();
    let listed = replica
        .sessions()
        .await
        .list_messages(pb::ListMessagesRequest { session_id: "large".to_owned(), ..Default::default() })
        .await
        .unwrap()
        .into_inner()
        .messages;
    assert_eq!(listed.iter().find(|message| message.role() == pb::Role::Tool).unwrap().parts, committed.parts);
    let mut previews = 0;
    for (index, part) in committed.parts.iter().enumerate() {
        let Some(Content::ToolResult(result)) = &part.content else { panic!("not a result") };
        let Some(Content::Text(words)) = &result.parts[0].content else { panic!("not a text") };
        let Some(blob) = &result.parts[0].preview_of else {
            assert_eq!(*words, output(index));
            continue;
        };
        previews += 1;
        assert_eq!(*words, output(index)[..4096]);
        let (found, content) =
            replica.blob(pb::GetBlobRequest { blob_id: blob.blob_id.clone(), ..Default::default() }).await;
        assert_eq!((found.size_bytes, content), (blob.size_bytes, output(index).into_bytes()));
    }
    assert!(previews > 30, "{previews}");
}

/// Row D6
#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_output_is_read_whole_and_by_range_from_its_blob() {
    let (_database, replica) = Replica::alone(Options::default().script("many", many_calls(1))).await;
    let mut turns = replica.turns().await;
    let mut request = turn("cut", "scripted/many", "look");
    request.tools = tools(&["look"]);
    let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
    let calls = requested(&until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await);
    let whole: String = (0..30_000).map(|line| format!("{line:05}\n")).collect();
    turns.submit_tool_results(submit("cut", vec![result(&calls[0], &whole)])).await.unwrap();
    let rest = all(&mut stream).await;
    let truncation = rest
        .iter()
        .find_map(|event| match &event.payload {
            Some(Payload::ToolCallCompleted(completed)) => completed.result.as_ref().unwrap().truncation.clone(),
            _ => None,
        })
        .unwrap();
    assert_eq!((truncation.original_chars, truncation.kept_chars), (180_000, 120_000));
    let blob_id = truncation.full_output.unwrap().blob_id;
    let mut blobs = BlobServiceClient::new(replica.channel().await);
    let of = |offset_bytes, length_bytes| pb::GetBlobRequest { blob_id: blob_id.clone(), offset_bytes, length_bytes };
    let (blob, content) = replica.blob(of(0, 0)).await;
    assert_eq!((blob.size_bytes, content), (180_000, whole.clone().into_bytes()));
    for (offset, length) in [(0, 1), (65_535, 2), (65_536, 65_536), (179_999, 1), (100_000, 0), (180_000, 0)] {
        let end = if length == 0 { whole.len() } else { offset + length };
        let (_, content) = replica.blob(of(offset as i64, length as i64)).await;
        assert_eq!(content, whole.as_bytes()[offset..end], "{offset} {length}");
    }
    for outside in [of(180_001, 0), of(0, 180_001), of(179_999, 2), of(-1, 0)] {
        assert_eq!(blobs.get_blob(outside).await.unwrap_err().code(), Code::InvalidArgument);
    }
    let unknown = pb::GetBlobRequest { blob_id: "0".repeat(64), ..Default::default() };
    assert_eq!(blobs.get_blob(unknown).await.unwrap_err().code(), Code::NotFound);
}
