//! Responses that are read from events: they do not change when retention removes the events around them.

use contextd::pb;

use super::{HOUR, age, count, events_for, named, options};
use crate::harness::{Host, as_worker, events::until_written, host::MODEL, requests::turn, transcripts::one_turn};

/// Responses that depend on events: marks with their times, and the effects of repeated requests.
async fn answered_from_events(host: &Host) -> (Vec<pb::Message>, Vec<pb::Compaction>, [String; 3]) {
    let session_id = || "chat".to_owned();
    let mut contexts = host.contexts();
    let all = pb::ListCompactionsRequest { session_id: session_id(), ..Default::default() };
    let compactions = contexts.list_compactions(all).await.unwrap().into_inner().compactions;
    let prune =
        pb::PruneToolOutputsRequest { session_id: session_id(), request_id: "prune".to_owned(), ..Default::default() };
    let report = contexts.prune_tool_outputs(prune).await.unwrap().into_inner().report.unwrap();
    let restore = pb::RestoreToolOutputsRequest {
        session_id: session_id(),
        pruned_at_seq: report.pruned_at_seq,
        request_id: "restore".to_owned(),
    };
    let restored = contexts.restore_tool_outputs(restore).await.unwrap().into_inner();
    let cancel = pb::CancelTurnRequest {
        session_id: session_id(),
        request_id: "cancel".to_owned(),
        ..pb::CancelTurnRequest::default()
    };
    let cancelled = host.turns().cancel_turn(cancel).await.unwrap().into_inner();
    let told = [format!("{report:?}"), format!("{restored:?}"), format!("{:?}", cancelled.outcome())];
    (host.messages("chat").await, compactions, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_read_from_events_stay_the_same_after_other_events_were_removed() {
    let host = Host::with(options(events_for(HOUR))).await;
    let client = host.database.client().await;
    // Results are only pruned on request.
    let prune = pb::PrunePolicy { mode: pb::PruneMode::OnOverflow.into(), ..pb::PrunePolicy::default() };
    let policy = pb::Policy { prune: Some(prune), ..pb::Policy::default() };
    host.create(pb::Session { model: MODEL.to_owned(), policy_overrides: Some(policy), ..named("chat") }).await;
    for (n, tokens) in [30_000, 20_000, 20_000, 20_000, 5, 5].into_iter().enumerate() {
        host.append("chat", one_turn(&format!("c{n}"), tokens)).await;
    }
    let compact = pb::CompactRequest {
        session_id: "chat".to_owned(),
        strategy: pb::CompactionStrategy::MiddleRemoval.into(),
        target_tokens: 50_000,
        wait: true,
        ..Default::default()
    };
    let made = host.contexts().compact(compact).await.unwrap().into_inner().compaction.unwrap();
    let revert = pb::RevertCompactionRequest {
        session_id: "chat".to_owned(),
        compaction_id: made.compaction_id,
        request_id: String::new(),
    };
    host.contexts().revert_compaction(revert).await.unwrap();
    let mut stream = host.execute(turn("chat", MODEL, "slowly")).await;
    until_written(&mut stream, "Wait.").await;
    let first = answered_from_events(&host).await;
    assert_eq!(first.2[2], "PartialAssistant");
    // Restored results can be cleared again. This one stays cleared.
    let again = pb::PruneToolOutputsRequest { session_id: "chat".to_owned(), ..Default::default() };
    host.contexts().prune_tool_outputs(again).await.unwrap();
    age(&client, 2 * HOUR).await;
    let before = answered_from_events(&host).await;
    let is_marked = |part: &pb::Part| match &part.content {
        Some(pb::part::Content::ToolResult(it)) => it.prune_mark.is_some_and(|mark| mark.compacted_time.is_some()),
        _ => false,
    };
    assert!(before.0.iter().flat_map(|message| &message.parts).any(is_marked));
    assert!(before.1[0].revert_time.is_some());
    let events = count(&client, "events", "chat").await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert!(count(&client, "events", "chat").await < events, "events were removed");
    assert_eq!(answered_from_events(&host).await, before);
}
