//! The usage of a turn: the model calls that its events record, in every API that returns it.

use contextd::pb::{self, CompletionReason, TurnState, event::Payload};
use serde_json::{Value, json};

use crate::{
    compaction::{answering, listed, session},
    harness::{
        Host,
        events::{accounted, all, completed, kinds, requested, turn_id, until, until_action},
        host::call,
        requests::{result, tools, turn},
    },
};

fn spends(mut say: Vec<Value>, reason: &str, input: u32, output: u32) -> Value {
    say.push(json!({"finish": {"reason": reason, "usage": {"input": input, "output": output}}}));
    Value::Array(say)
}

/// Fails unless the terminal event, GetTurn and the statistics have these totals for the turn, which are the sums of
/// its recorded calls.
async fn assert_totals(host: &Host, turn: &str, calls: i64, tokens: i64) {
    let events = host.events("s", "", 0, 1_000).await;
    let spent = accounted(&events, turn);
    assert_eq!((spent.calls, spent.total_tokens), (calls, tokens), "the events");
    let result = events.iter().filter(|event| event.turn_id == turn).find_map(|event| match &event.payload {
        Some(Payload::TurnCompleted(end)) => end.result.clone(),
        Some(Payload::TurnCancelled(end)) => end.result.clone(),
        Some(Payload::TurnFailed(end)) => end.result.clone(),
        _ => None,
    });
    assert_eq!(result.unwrap().total_usage, Some(spent), "the terminal event");
    assert_eq!(host.turn("s", turn).await.result.unwrap().total_usage, Some(spent), "GetTurn");
    let recent = host.stats("s").await.recent_turns;
    let found = recent.iter().find(|recent| recent.turn_id == turn).unwrap();
    assert_eq!(found.total_usage, Some(spent), "the statistics");
}

/// Row A2
#[tokio::test(flavor = "multi_thread")]
async fn the_totals_of_a_turn_include_the_compactions_that_made_room_for_it() {
    let answers = [spends(vec![json!({"text": "Fine."})], "stop", 1_000, 20)];
    let summary = spends(vec![json!({"text": "In short."})], "stop", 900, 15);
    let host = Host::with(answering(&answers, &summary)).await;
    session(&host, 6_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let events = host.run(turn("s", "", "Well?")).await;
    assert!(kinds(&events).contains(&"compaction_completed"));
    assert_totals(&host, &turn_id(&events), 2, 1_935).await;

    // A failed compaction was paid for too.
    let host = Host::with(answering(&answers, &spends(vec![json!({"text": " "})], "stop", 900, 15))).await;
    let policy = pb::CompactionPolicy { threshold: Some(0.5), ..proactive() };
    session(&host, 10_000, policy, &[1_000; 6]).await;
    let events = host.run(turn("s", "", "Well?")).await;
    assert!(kinds(&events).contains(&"compaction_failed"));
    assert_totals(&host, &turn_id(&events), 2, 1_935).await;
}

fn proactive() -> pb::CompactionPolicy {
    pb::CompactionPolicy { strategy: pb::CompactionStrategy::ProactiveThreshold.into(), ..Default::default() }
}

/// Rows D11 and A2
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_that_ends_during_the_last_call_of_a_turn_is_in_its_terminal_event() {
    let answers = [
        spends(vec![call("look")], "tool_calls", 500, 5),
        spends(vec![json!({"text": "So "}), json!({"wait_for": "answer"}), json!({"text": "be it."})], "stop", 600, 6),
    ];
    let summary = spends(vec![json!({"wait_for": "summary"}), json!({"text": "In short."})], "stop", 7_000, 70);
    let host = Host::with(answering(&answers, &summary)).await;
    let policy = pb::CompactionPolicy { background: Some(true), ..Default::default() };
    session(&host, 10_000, policy, &[1_000; 7]).await;
    let mut stream = host.execute(pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", "", "Well?") }).await;
    let (head, [calls, _]) = until_action(&mut stream).await;
    host.submit("s", vec![result(&calls[0], "There.")]).await;
    until(&mut stream, |payload| matches!(payload, Payload::TextDelta(_))).await;
    host.release("summary");
    let mut watch = host.watch("s", "", 0).await;
    until(&mut watch, |payload| matches!(payload, Payload::CompactionCompleted(_))).await;
    host.release("answer");
    until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    assert_totals(&host, &turn_id(&head), 3, 505 + 606 + 7_070).await;
}

/// Rows D11 and A2
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_that_ends_between_two_turns_is_in_the_totals_of_neither() {
    let answers = [spends(vec![json!({"text": "Fine."})], "stop", 500, 5)];
    let summary = spends(vec![json!({"wait_for": "summary"}), json!({"text": "In short."})], "stop", 7_000, 70);
    let host = Host::with(answering(&answers, &summary)).await;
    let policy = pb::CompactionPolicy { background: Some(true), ..Default::default() };
    session(&host, 10_000, policy, &[1_000; 7]).await;
    let first = turn_id(&host.run(turn("s", "", "Well?")).await);
    host.release("summary");
    let mut watch = host.watch("s", "", 0).await;
    until(&mut watch, |payload| matches!(payload, Payload::CompactionCompleted(_))).await;
    let second = turn_id(&host.run(turn("s", "", "And?")).await);
    assert_totals(&host, &first, 1, 505).await;
    assert_totals(&host, &second, 1, 505).await;
    let spent: i64 = host.stats("s").await.usage.iter().map(|spent| spent.usage.unwrap().total_tokens).sum();
    assert_eq!(spent, 2 * 505 + 7_070, "the session has paid for it");
}

/// Rows D14 and A2
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_that_uses_up_the_budget_of_a_turn_ends_it() {
    let answers = [
        spends(vec![call("look")], "tool_calls", 5_600, 10),
        spends(vec![json!({"text": "Fine."})], "stop", 1_100, 20),
    ];
    let summary = spends(vec![json!({"text": "In short."})], "stop", 50_000, 100);
    let host = Host::with(answering(&answers, &summary)).await;
    session(&host, 8_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let limits = Some(pb::TurnLimits { max_total_tokens: 10_000, ..Default::default() });
    let asks = pb::ExecuteTurnRequest { tools: tools(&["look"]), limits, ..turn("s", "", "Well?") };
    let events = host.run_with(asks, |call| result(&call.call_id, &"x".repeat(8_000))).await;
    assert_eq!(requested(&events).len(), 1);
    assert_eq!(listed(&host).await.len(), 1, "{:?}", kinds(&events));
    assert_eq!(completed(&events).reason(), CompletionReason::Budget);
    let asked: Vec<_> = host.replica.scripted.prompts().iter().map(|prompt| prompt.model.clone()).collect();
    assert_eq!(asked, ["it", "sum"], "nothing more is spent");
    assert_totals(&host, &turn_id(&events), 2, 55_710).await;
    let turn = host.turn("s", &turn_id(&events)).await;
    assert_eq!((turn.state(), turn.completion_reason()), (TurnState::Completed, CompletionReason::Budget));
    let mut next = host.execute(turn_with_budget()).await;
    assert_eq!(completed(&all(&mut next).await).reason(), CompletionReason::Stop, "another turn has its own");
}

fn turn_with_budget() -> pb::ExecuteTurnRequest {
    let limits = Some(pb::TurnLimits { max_total_tokens: 10_000, ..Default::default() });
    pb::ExecuteTurnRequest { limits, ..turn("s", "", "So?") }
}
