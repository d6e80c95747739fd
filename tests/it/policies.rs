//! Named policies: configured, selected by a session, and overridden by it.

use contextd::pb::{self, context_service_client::ContextServiceClient, part::Content};
use prost_types::FieldMask;

use crate::harness::{
    TestDatabase,
    errors::refusal,
    process::{Place, Served},
    transcripts::{append, one_turn},
};

const SETTINGS: &str = "
    [policies.small]
    context_window = 1000
    output_reserve = 100
    [policies.small.prune]
    minimum_tokens = 10
    protect_tokens = 35
    protect_turns = 0
    [policies.terse.tools.output_limits.look]
    max_output_chars = 40";

async fn create(served: &Served, id: &str, policy: &str, overrides: pb::Policy) {
    let session = pb::Session {
        session_id: id.to_owned(),
        policy: policy.to_owned(),
        policy_overrides: Some(overrides),
        ..Default::default()
    };
    let request = pb::CreateSessionRequest { session: Some(session), request_id: String::new() };
    served.sessions().await.create_session(request).await.unwrap();
}

/// The window, the reserve, how many of two appended results were cleared, and the characters of the last one.
async fn managed(served: &Served, id: &str) -> (i32, i32, i32, usize) {
    let mut sessions = served.sessions().await;
    for call in ["c1", "c2"] {
        sessions.append_messages(append(id, one_turn(call, 30))).await.unwrap();
    }
    let mut contexts = ContextServiceClient::new(served.channel().await);
    let prepare = pb::PrepareContextRequest { session_id: id.to_owned(), ..Default::default() };
    let prompt = contexts.prepare_context(prepare).await.unwrap().into_inner().prompt.unwrap();
    let mut results =
        prompt.messages.iter().flat_map(|message| &message.parts).filter_map(|part| match &part.content {
            Some(Content::ToolResult(result)) => Some(result.parts[0].clone()),
            _ => None,
        });
    let Some(Content::Text(last)) = results.next_back().unwrap().content else { panic!("no text") };
    let stats = pb::GetContextStatsRequest { session_id: id.to_owned(), ..Default::default() };
    let stats = contexts.get_context_stats(stats).await.unwrap().into_inner().stats.unwrap();
    (stats.context_window, stats.output_reserve, stats.pruned_count, last.chars().count())
}

/// Rows D26 and L7
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_kept_by_the_policy_that_it_names_and_by_what_it_overrides() {
    let database = TestDatabase::new().await;
    let place = Place::new(SETTINGS);
    let served = place.serve_over(&database).await;
    let none = pb::Policy::default;
    create(&served, "shipped", "", none()).await;
    create(&served, "small", "small", none()).await;
    let keeps = pb::PrunePolicy { minimum_tokens: Some(1_000), ..Default::default() };
    create(&served, "mixed", "small", pb::Policy { prune: Some(keeps), context_window: Some(2_000), ..none() }).await;
    create(&served, "terse", "terse", none()).await;
    let (window, reserve, ..) = managed(&served, "shipped").await;
    assert_eq!(managed(&served, "small").await, (1_000, 100, 1, 120));
    assert_eq!(managed(&served, "mixed").await, (2_000, 100, 0, 120), "the rest is as the policy says");
    let cut = 40 + "\n\n[Output truncated - exceeded maximum length]".chars().count();
    assert_eq!(managed(&served, "terse").await, (window, reserve, 0, cut), "what it does not set is as shipped");
    let session = pb::Session { session_id: "terse".to_owned(), policy: "small".to_owned(), ..Default::default() };
    let update_mask = Some(FieldMask { paths: vec!["policy".to_owned()] });
    let change = pb::UpdateSessionRequest { session: Some(session), update_mask, ..Default::default() };
    served.sessions().await.update_session(change).await.unwrap();
    let mut contexts = ContextServiceClient::new(served.channel().await);
    let stats = pb::GetContextStatsRequest { session_id: "terse".to_owned(), ..Default::default() };
    assert_eq!(contexts.get_context_stats(stats).await.unwrap().into_inner().stats.unwrap().context_window, 1_000);
    let unknown = pb::Session { policy: "nobodys".to_owned(), ..Default::default() };
    let request = pb::CreateSessionRequest { session: Some(unknown), request_id: String::new() };
    let refused = refusal(&served.sessions().await.create_session(request).await.unwrap_err());
    assert_eq!(refused.reason, "POLICY_NOT_FOUND");
    served.stop().await;
}

const COMPACTIONS: &str = "
    [policies.rhymes.compaction]
    keep_turns = 1
    summary_model = 'scripted/sum'
    [policies.middle.compaction]
    strategy = 'middle_removal'
    [policies.brief.prune]
    minimum_tokens = 10
    protect_tokens = 500
    protect_turns = 1";

/// Rows D26 and S2
#[tokio::test(flavor = "multi_thread")]
async fn a_context_is_compacted_as_the_named_policy_says() {
    use pb::CompactionStrategy::{MiddleRemoval, ReactiveOverflow};
    let database = TestDatabase::new().await;
    let rhymes = serde_json::json!({"steps": [{"say": [{"text": "In rhymes."}]}]});
    let place = Place::new(COMPACTIONS).script("sum", &rhymes);
    let served = place.serve_over(&database).await;
    let mut contexts = ContextServiceClient::new(served.channel().await);
    let window = pb::Policy { context_window: Some(4_000), output_reserve: Some(1_000), ..pb::Policy::default() };
    let mut compacted = Vec::new();
    for policy in ["", "rhymes", "middle"] {
        let session_id = format!("of-{policy}");
        create(&served, &session_id, policy, window.clone()).await;
        for n in 0..5 {
            served
                .sessions()
                .await
                .append_messages(append(&session_id, one_turn(&format!("c{n}"), 300)))
                .await
                .unwrap();
        }
        let request = pb::CompactRequest { session_id, wait: true, ..Default::default() };
        let made = contexts.compact(request).await.unwrap().into_inner();
        let made = made.compaction.unwrap();
        compacted.push((made.strategy(), made.messages_before - made.messages_after, made.summary_model));
    }
    assert_eq!((compacted[0].0, compacted[0].1), (ReactiveOverflow, 11));
    assert_eq!(compacted[1], (ReactiveOverflow, 15, "scripted/sum".to_owned()));
    assert_eq!(compacted[2].0, MiddleRemoval);

    create(&served, "of-brief", "brief", window).await;
    for n in 0..5 {
        let turn = append("of-brief", one_turn(&format!("c{n}"), 300));
        let mut sessions = served.sessions().await;
        sessions.append_messages(turn).await.unwrap();
    }
    let request = pb::PruneToolOutputsRequest { session_id: "of-brief".to_owned(), ..Default::default() };
    let pruned = contexts.prune_tool_outputs(request).await.unwrap();
    let report = pruned.into_inner().report.unwrap();
    assert_eq!(report.call_ids, ["c0", "c1", "c2"], "one turn is kept, and one result of those before");
    served.stop().await;
}
