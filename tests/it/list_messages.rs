//! ListMessages: all messages with their marks, or only the model's view, now or as of a seq.

use contextd::{
    model::Content as Told,
    pb::{self, MessageView, part::Content},
};
use serde_json::json;

use crate::harness::{
    Host, Options,
    errors::refusal,
    events::{content, outline},
    history::{History, Point},
    host::{MODEL, answering, call, finish},
    requests::{result, turn},
    transcripts::{calls, ids, one_turn, results, says},
};

/// A model that calls a tool once, then responds with text.
fn looks() -> Options {
    answering(&[json!([call("look"), finish("tool_calls")]), json!([{"text": "Fine."}])])
}

fn point<'a>(points: &'a [Point], what: &str) -> &'a Point {
    points.iter().find(|point| point.what == what).unwrap_or_else(|| panic!("no point is {what}"))
}

fn words(messages: &[pb::Message]) -> Vec<&str> {
    messages.iter().flat_map(|message| &message.parts).map(content).collect()
}

/// The compaction that removed each message from the prompt, for those that were removed.
fn taken_out(messages: &[pb::Message]) -> Vec<(i64, &str)> {
    let out = messages.iter().filter(|message| !message.compacted_by.is_empty());
    out.map(|message| (message.seq, message.compacted_by.as_str())).collect()
}

/// Rows S5, S6 and A11
#[tokio::test(flavor = "multi_thread")]
async fn a_message_costs_what_its_parts_have_in_characters_and_four_tokens() {
    let host = Host::with(looks()).await;
    host.with_turns("s", &[]).await;
    let long = vec![calls(&["c2"]), results(&["c2"])];
    let said = vec![says(pb::Role::User, "12345678"), calls(&["c1"])];
    host.append("s", [says(pb::Role::User, "日本語")].to_vec()).await;
    host.append("s", said).await;
    host.append("s", vec![results(&["c1"])]).await;
    host.append("s", long).await;
    host.append("s", one_turn("c3", 100)).await;
    let tokens = async || -> Vec<i32> {
        let listed = host.listed("s", MessageView::Live, 0, false, 100).await;
        let size = |message: &pb::Message| message.tokens.as_ref().unwrap().tokens - 4;
        listed.iter().map(size).collect()
    };
    // Each call is "look" and "{}". Each short result is "seen c1".
    assert_eq!(tokens().await, [4, 2, 2, 2, 2, 2, 2, 2, 100, 2]);
    let used = host.stats("s").await.used.unwrap();
    // The beginning of the response takes three tokens.
    assert_eq!(used.tokens, 120 + 10 * 4 + 3);
    assert_eq!(used.margin, 17, "a tenth, rounded up");
    let prune = pb::PruneToolOutputsRequest {
        session_id: "s".to_owned(),
        minimum_tokens: Some(0),
        protect_tokens: Some(0),
        protect_turns: Some(0),
        ..Default::default()
    };
    host.contexts().prune_tool_outputs(prune).await.unwrap();
    // The tokens of "[Old tool result content cleared]".
    assert_eq!(tokens().await, [4, 2, 2, 2, 2, 2, 2, 2, 9, 2]);
}

/// Rows S3 and S11
#[tokio::test(flavor = "multi_thread")]
async fn the_live_view_is_the_summary_and_what_follows_it() {
    let host = Host::with(looks()).await;
    let History { points, .. } = History::make(&host, "chat").await;
    let begun = point(&points, "appended");
    assert_eq!((ids(&begun.live), taken_out(&begun.all)), (ids(&begun.all), vec![]));
    let compacted = point(&points, "a compaction");
    assert_eq!(words(&compacted.live), ["in short", "keep", "six"]);
    assert_eq!(compacted.live.iter().map(|message| message.seq).collect::<Vec<_>>(), [8, 3, 6]);
    assert_eq!(compacted.live.iter().map(|message| message.is_summary).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(taken_out(&compacted.all), [(1, "k1"), (2, "k1"), (4, "k1"), (5, "k1")]);
    let over = point(&points, "a compaction upon the other, without a summary");
    assert_eq!(words(&over.live), ["keep", "{}", "[Old tool result content cleared]", "twelve"]);
    assert_eq!(taken_out(&over.all), [(1, "k1"), (2, "k1"), (4, "k1"), (5, "k1"), (6, "k2"), (8, "k2"), (9, "k2")]);
    let back = point(&points, "it was taken back");
    assert_eq!(taken_out(&back.all), taken_out(&compacted.all));
    let replaced = point(&points, "a compaction that replaces the summary");
    assert_eq!(words(&replaced.live), ["in shorter", "keep", "And now?", "{}", "seen", "Fine."]);
    assert_eq!(taken_out(&replaced.all)[6..], [(9, "k3"), (10, "k3"), (11, "k3"), (12, "k3")]);
    assert_eq!(taken_out(&replaced.all)[5], (8, "k3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pruned_result_is_whole_in_the_full_view_and_a_placeholder_in_the_live_view() {
    let host = Host::with(looks()).await;
    let History { points, .. } = History::make(&host, "chat").await;
    let result = |messages: &[pb::Message]| {
        let parts = messages.iter().flat_map(|message| message.parts.clone());
        parts
            .filter_map(|part| match part.content {
                Some(Content::ToolResult(result)) if result.call_id == "c2" => Some((result, part.tokens.unwrap())),
                _ => None,
            })
            .next()
            .unwrap()
    };
    let before = point(&points, "appended behind the summary");
    let after = point(&points, "a prune");
    let (whole, size) = result(&before.live);
    assert_eq!((whole.prune_mark, content(&whole.parts[0])), (None, "seen c2"));
    let (kept, kept_size) = result(&after.all);
    let (seen, seen_size) = result(&after.live);
    let mark = kept.prune_mark.as_ref().unwrap();
    assert_eq!((mark.pruned_at_seq, mark.original_tokens), (after.seq, size.tokens));
    assert!(mark.compacted_time.is_some());
    assert_eq!((content(&kept.parts[0]), content(&seen.parts[0])), ("seen c2", "[Old tool result content cleared]"));
    assert_eq!((&seen.prune_mark, kept_size.tokens, seen_size.tokens), (&kept.prune_mark, 2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn voided_messages_are_marked_in_the_full_view_and_absent_from_the_live_view() {
    let host = Host::with(looks()).await;
    let History { points, .. } = History::make(&host, "chat").await;
    let rolled_back = point(&points, "a rollback");
    let void: Vec<&pb::Message> = rolled_back.all.iter().filter(|message| message.voided_at_seq > 0).collect();
    assert_eq!(void.iter().map(|message| content(&message.parts[0])).collect::<Vec<_>>(), ["void", "void too"]);
    assert!(void.iter().all(|message| message.voided_at_seq == rolled_back.seq));
    assert_eq!(ids(&rolled_back.live), ids(&point(&points, "a prune").live));
}

/// Row I5
#[tokio::test(flavor = "multi_thread")]
async fn a_list_as_of_a_seq_is_the_list_at_that_time() {
    let host = Host::with(looks()).await;
    let History { points, .. } = History::make(&host, "chat").await;
    for Point { what, seq, all, live } in points.iter().filter(|point| point.seq > 0) {
        for (view, expected) in [(MessageView::All, all), (MessageView::Live, live)] {
            for page_size in [1, 2, 3, 5, 100] {
                let listed = host.listed("chat", view, *seq, false, page_size).await;
                assert_eq!(outline(&listed), outline(expected), "{view:?} after {what} in pages of {page_size}");
                assert_eq!(&listed, expected, "{view:?} after {what} in pages of {page_size}");
                let mut reversed = host.listed("chat", view, *seq, true, page_size).await;
                reversed.reverse();
                assert_eq!(&reversed, expected, "{view:?} after {what}, newest first, in pages of {page_size}");
            }
        }
    }
    let last = host.session("chat").await.last_seq;
    let ahead = pb::ListMessagesRequest { session_id: "chat".to_owned(), at_seq: last + 1, ..Default::default() };
    let refused = refusal(&host.sessions().list_messages(ahead).await.unwrap_err());
    assert_eq!((refused.reason.as_str(), refused.metadata["last_seq"].clone()), ("CURSOR_AHEAD", last.to_string()));
    assert_eq!(refused.fields, [("at_seq".to_owned(), "OUT_OF_RANGE".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_gets_what_the_live_view_shows() {
    let host = Host::with(looks()).await;
    History::make(&host, "chat").await;
    let live = host.live("chat").await;
    host.run_with(turn("chat", MODEL, "Go on"), |call| result(&call.call_id, "seen")).await;
    let prompts = host.replica.scripted.prompts();
    let prompt = &prompts[prompts.len() - 2];
    let told = prompt.transcript.messages();
    assert_eq!(told[..told.len() - 1].iter().map(|message| message.id.as_str()).collect::<Vec<_>>(), ids(&live));
    let read = told.iter().flat_map(|message| &message.parts).map(|stored| match &stored.part.content {
        Told::Text(text) | Told::Refusal(text) | Told::Reasoning { text, .. } => text.as_str(),
        Told::ToolCall(call) => &call.arguments,
        Told::ToolResult(result) => result.texts().next().unwrap(),
        Told::Media(_) | Told::ProviderItem(_) | Told::Unknown(_) => {
            panic!("only words are here")
        }
    });
    assert_eq!(read.collect::<Vec<_>>().split_last().unwrap().1, words(&live));
    let now = host.live("chat").await;
    let last = prompts.last().unwrap().transcript.messages();
    assert_eq!(last.iter().map(|message| message.id.as_str()).collect::<Vec<_>>(), ids(&now[..now.len() - 1]));
}

/// The id of a call that a compaction removed from the prompt remains in use.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_id_outside_the_live_view_is_not_reused() {
    let says_again = json!([{"tool_call": {"name": "look", "id": "c1"}}]);
    let host = Host::with(answering(&[says_again, json!([{"text": "Fine."}])])).await;
    History::make(&host, "chat").await;
    let seen = host.run_with(turn("chat", MODEL, "Again"), |call| result(&call.call_id, "seen")).await;
    let asked = crate::harness::events::requested(&seen);
    assert_eq!(asked.len(), 1);
    assert_ne!(asked[0], "c1");
    crate::harness::events::completed(&seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_token_is_bound_to_its_seq() {
    let host = Host::with(looks()).await;
    host.create(pb::Session { session_id: "chat".to_owned(), ..pb::Session::default() }).await;
    host.append("chat", vec![says(pb::Role::User, "one"), calls(&["c1"]), results(&["c1"])]).await;
    let page = |at_seq, page_token| pb::ListMessagesRequest {
        session_id: "chat".to_owned(),
        at_seq,
        page_size: 1,
        page_token,
        ..pb::ListMessagesRequest::default()
    };
    let first = host.sessions().list_messages(page(2, String::new())).await.unwrap().into_inner();
    let elsewhere = host.sessions().list_messages(page(3, first.next_page_token.clone())).await.unwrap_err();
    assert_eq!(refusal(&elsewhere).reason, "PAGE_TOKEN_INVALID");
    let second = host.sessions().list_messages(page(2, first.next_page_token)).await.unwrap().into_inner();
    assert_eq!((second.messages[0].seq, second.next_page_token), (2, String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_newer_kind_is_listed_without_content_and_fails_no_turn() {
    let host = Host::with(answering(&[json!([{"text": "Fine."}])])).await;
    host.run(turn("s", MODEL, "Hello")).await;
    let newer = "update parts set kind = 'hologram' where session_id = 's' and body = 'Fine.'";
    let changed = host.database.client().await.execute(newer, &[]).await;
    assert_eq!(changed.unwrap(), 1);
    host.run(turn("s", MODEL, "Go on")).await;
    let listed = host.listed("s", MessageView::All, 0, false, 100).await;
    let contents: Vec<_> = listed.iter().flat_map(|message| &message.parts).map(|part| part.content.clone()).collect();
    let text = |text: &str| Some(Content::Text(text.to_owned()));
    let expected = [text("Hello"), None, text("Go on"), text("Fine.")];
    assert_eq!(contents, expected);
}
