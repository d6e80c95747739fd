//! A failover to a standby that is missing the newest commits, while replicas run.

use contextd::pb::{self, event::Payload};
use tonic::{Code, Status, Streaming};

use crate::harness::{
    Host, Options,
    errors::refusal,
    events::{self, outline, until, until_written},
    host::{MODEL, until as eventually},
    requests::turn,
    snapshot::Snapshot,
};

/// Models that stream until they are released.
fn options() -> Options {
    let script = serde_json::json!({"steps": [
        {"when": {"user_contains": "lost"}, "say": [{"text": "Lost"}, {"wait_for": "lost"}, {"text": " words."}]},
        {"when": {"user_contains": "kept"}, "say": [{"text": "Kept"}, {"wait_for": "kept"}, {"text": " words."}]},
        {"say": [{"text": "Hello."}]},
    ]});
    Options::default().script("it", script.to_string())
}

/// Reads a stream to its end. Returns the error with which it ends.
async fn cut_off<T: events::Carrier>(stream: &mut Streaming<T>) -> Option<Status> {
    loop {
        match events::next(stream).await {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(status) => return Some(status),
        }
    }
}

/// One replica has a turn whose admission is lost. Then the other replica is granted the same epoch and op for another
/// turn, and the model of the first turn responds. Returns the resulting messages, and how the streams of the readers
/// ended.
async fn story() -> (Vec<String>, [Option<Status>; 2]) {
    let first = Host::with(options()).await;
    let second = first.beside(options()).await;
    first.ask("s", "Hi").await;
    let snapshot = Snapshot::of(&first.database).await;
    let mut lost = first.execute(turn("s", MODEL, "To be lost")).await;
    until_written(&mut lost, "Lost").await;
    let mut reader = second.watch("s", "", 0).await;
    until(&mut reader, |payload| matches!(payload, Payload::Sync(_))).await;
    snapshot.restore().await;
    let _kept = second.execute(turn("s", MODEL, "To be kept")).await;
    eventually("the other turn to call its model", || async { !second.replica.scripted.prompts().is_empty() }).await;
    first.release("lost");
    first.at_rest().await;
    second.release("kept");
    let ended = [cut_off(&mut lost).await, cut_off(&mut reader).await];
    second.at_rest().await;
    (outline(&second.messages("s").await), ended)
}

/// Row F41
#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_that_lost_commits_writes_are_fenced_and_readers_notified() {
    let (transcript, ended) = story().await;
    let kept = ["USER: \"Hi\"", "ASSISTANT: \"Hello.\"", "USER: \"To be kept\"", "ASSISTANT: \"Kept words.\""];
    assert_eq!(transcript, kept);
    for status in ended {
        let status = status.expect("a stream that showed what was lost ends with an error");
        assert_eq!((status.code(), refusal(&status).reason.as_str()), (Code::DataLoss, "EVENTS_LOST"));
    }
}

/// Row F41
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_lost_events_is_notified_without_new_events() {
    let host = Host::with(options()).await;
    host.ask("s", "Hi").await;
    let snapshot = Snapshot::of(&host.database).await;
    host.ask("s", "Again").await;
    let after = host.session("s").await.last_seq;
    let mut reader = host.watch("s", "", after).await;
    until(&mut reader, |payload| matches!(payload, Payload::Sync(_))).await;
    snapshot.restore().await;
    let status = cut_off(&mut reader).await.expect("nothing is left of what it showed");
    assert_eq!(refusal(&status).reason, "EVENTS_LOST");
    assert_eq!(refusal(&status).metadata["last_seq"], host.session("s").await.last_seq.to_string());
    // A client that reconnects with that seq is refused, and resumes from the last seq.
    let request = pb::WatchEventsRequest { session_id: "s".to_owned(), after_seq: after, ..Default::default() };
    let refused = match host.turns().watch_events(request).await {
        Ok(stream) => cut_off(&mut stream.into_inner()).await.unwrap(),
        Err(status) => status,
    };
    assert_eq!(refusal(&refused).reason, "CURSOR_AHEAD");
    let last = host.session("s").await.last_seq;
    let mut reader = host.watch("s", "", last).await;
    until(&mut reader, |payload| matches!(payload, Payload::Sync(_))).await;
    host.ask("s", "Once more").await;
    until(&mut reader, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
}
