//! A compaction that hides the response of a running turn's current step, with the results of its calls.

use std::time::Duration;

use super::*;
use crate::harness::{
    as_worker,
    events::{requested, until_action},
    host,
    requests::{result, tools},
};

/// The replica drains, so that the turn has no owner after its results: the compaction comes before the next step.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_response_and_results_are_hidden_is_not_repeated() {
    let without_workers = |say: &[serde_json::Value]| Options { workers: false, ..host::answering(say) };
    let first = Host::with(without_workers(&[json!([call("look")])])).await;
    let ask = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Look") };
    let mut stream = first.execute(ask).await;
    let (seen, _) = until_action(&mut stream).await;
    let look = requested(&seen).remove(0);
    as_worker(first.replica.engine.drain(Duration::from_secs(1))).await;
    let found = "It is all there. ".repeat(400);
    let answers = first.submit("s", vec![result(&look, &found)]).await;
    assert_eq!(answers, [pb::AnswerStatus::Accepted]);
    let second = first.beside(without_workers(&[json!([{ "text": "Done." }])])).await;
    let wish =
        pb::CompactRequest { strategy: CompactionStrategy::Truncation.into(), target_tokens: 300, ..request("") };
    let made = try_compact(&second, wish).await.unwrap();
    assert_eq!(made.state(), CompactionState::Applied, "{made:?}");
    host::until("the turn to end", || async {
        // The turn is handed back some time after the results, and reported with the next beat.
        as_worker(first.replica.engine.send_heartbeat()).await.unwrap();
        as_worker(second.replica.engine.take_over()).await.unwrap();
        second.session("s").await.state() == pb::SessionState::Idle
    })
    .await;
    let steps: Vec<i32> = second
        .messages("s")
        .await
        .iter()
        .filter(|message| message.role() == pb::Role::Assistant)
        .map(|message| message.step)
        .collect();
    assert_eq!(steps, [1, 2]);
}
