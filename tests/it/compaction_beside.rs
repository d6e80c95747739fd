//! Background summaries, which are written while the turn continues.

use contextd::pb::{self, CompactionState, CompactionTrigger, event::Payload};
use serde_json::{Value, json};

use crate::{
    compaction::{answering, assert_recount, listed, seen, session},
    harness::{
        Host,
        events::{kinds, until, until_action},
        host::call,
        requests::{clears, result, tools, turn},
        transcripts::says,
    },
};

/// The beginning of a prompt that starts with the summary.
const SUMMARY: &str = "User: [Previous conversation summary]\n\nIn short.";

/// A model with these responses, and a summary model that blocks until it is released.
async fn host(answers: &[Value]) -> Host {
    Host::with(answering(answers, &json!([{"wait_for": "go"}, {"text": "In short."}]))).await
}

/// A session that has reached more than four fifths of the size at which it is compacted.
async fn nearly_full(host: &Host, background: bool) {
    let policy = pb::CompactionPolicy { background: Some(background), ..Default::default() };
    session(host, 10_000, policy, &[1_000; 7]).await;
}

fn look() -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", "", "Well?") }
}

/// The number of summaries in the prompt of each model call, in order.
fn summaries(host: &Host) -> Vec<usize> {
    let prompts = host.replica.scripted.prompts();
    let given = prompts.iter().filter(|prompt| prompt.model == "it");
    given.map(|prompt| prompt.transcript.messages().iter().filter(|message| message.is_summary).count()).collect()
}

/// Rows D11 and S14
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_continues_during_a_background_summary_and_uses_it_from_the_next_step() {
    let host = host(&[json!([call("look")]), json!([{"text": "Fine."}])]).await;
    nearly_full(&host, true).await;
    let mut stream = host.execute(look()).await;
    let (head, [calls, _]) = until_action(&mut stream).await;
    let about =
        |events: &[pb::Event]| kinds(events).into_iter().filter(|it| it.starts_with("compaction")).collect::<Vec<_>>();
    assert_eq!(about(&head), ["compaction_started"]);
    assert!(host.session("s").await.currently_compacting);
    host.release("go");
    let mut watch = host.watch("s", "", 0).await;
    until(&mut watch, |payload| matches!(payload, Payload::CompactionCompleted(_))).await;
    host.submit("s", vec![result(&calls[0], "There.")]).await;
    let rest = until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    assert_eq!(about(&rest), ["compaction_completed"]);
    assert_eq!(summaries(&host), [0, 1]);
    let made = &listed(&host).await[0];
    assert_eq!((made.state(), made.trigger()), (CompactionState::Applied, CompactionTrigger::Threshold));
    let live = seen(&host).await;
    assert_eq!(live[0], SUMMARY);
    assert_eq!(live.last().unwrap(), "Assistant: Fine.");
    assert_recount(&host, "s").await;
}

/// Row D11
#[tokio::test(flavor = "multi_thread")]
async fn a_background_summary_is_applied_after_its_turn_if_it_finishes_later() {
    let host = host(&[json!([{"text": "Fine."}])]).await;
    nearly_full(&host, true).await;
    let events = host.run(turn("s", "", "Well?")).await;
    assert_eq!(kinds(&events).last(), Some(&"turn_completed"));
    host.release("go");
    let mut watch = host.watch("s", "", 0).await;
    until(&mut watch, |payload| matches!(payload, Payload::CompactionCompleted(_))).await;
    assert_eq!(seen(&host).await[0], SUMMARY);
    assert_recount(&host, "s").await;
}

/// Rows D11 and D14
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_does_not_fit_waits_for_the_background_summary() {
    let host = host(&[json!([call("look")]), json!([{"text": "Fine."}])]).await;
    nearly_full(&host, true).await;
    let mut stream = host.execute(look()).await;
    let (_, [calls, _]) = until_action(&mut stream).await;
    host.submit("s", vec![result(&calls[0], &"x".repeat(8_000))]).await;
    until(&mut stream, |payload| matches!(payload, Payload::StepStarted(_))).await;
    host.release("go");
    until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    assert_eq!(summaries(&host), [0, 1]);
    assert_eq!(listed(&host).await.len(), 1);
    assert_recount(&host, "s").await;
}

/// Rows D11 and D17
#[tokio::test(flavor = "multi_thread")]
async fn results_are_not_pruned_while_they_are_summarised() {
    let host = host(&[json!([call("look")]), json!([call("look")]), json!([{"text": "Fine."}])]).await;
    nearly_full(&host, true).await;
    let prune = clears(pb::PruneMode::Always, 7_200);
    let mut stream = host.execute(look()).await;
    let (_, [calls, _]) = until_action(&mut stream).await;
    let policy_overrides = host.session("s").await.policy_overrides.map(|it| pb::Policy { prune: Some(prune), ..it });
    let update = pb::UpdateSessionRequest {
        session: Some(pb::Session { session_id: "s".to_owned(), policy_overrides, ..pb::Session::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["policy_overrides".to_owned()] }),
        ..Default::default()
    };
    host.sessions().update_session(update).await.unwrap();
    host.submit("s", vec![result(&calls[0], &"x".repeat(2_000))]).await;
    let (head, [calls, _]) = until_action(&mut stream).await;
    assert!(!kinds(&head).contains(&"context_pruned"));
    host.release("go");
    let mut watch = host.watch("s", "", 0).await;
    until(&mut watch, |payload| matches!(payload, Payload::CompactionCompleted(_))).await;
    host.submit("s", vec![result(&calls[0], "There.")]).await;
    until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    assert_eq!(listed(&host).await[0].state(), CompactionState::Applied);
    assert_recount(&host, "s").await;
}

/// Row D11
#[tokio::test(flavor = "multi_thread")]
async fn no_background_summary_without_the_policy() {
    let host = host(&[json!([{"text": "Fine."}])]).await;
    nearly_full(&host, false).await;
    host.run(turn("s", "", "Well?")).await;
    assert!(listed(&host).await.is_empty());
    host.append("s", vec![says(pb::Role::User, "And?"), says(pb::Role::Assistant, "So.")]).await;
    assert_recount(&host, "s").await;
}
