//! Notifications between replicas: polls are ten minutes apart, so only notifications make a replica read changes.
//! Readers on other replicas see every change immediately.

use std::time::Duration;

use contextd::{
    model::{SessionId, SessionKey, TenantId},
    pb::{self, event::Payload},
};
use prost_types::FieldMask;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use crate::harness::{
    Host, Options, as_worker,
    events::{Carrier, TEST_TIMEOUT, kind, next, requested, until, until_written},
    host::{MODEL, answering, call, until as eventually},
    requests::{enqueue, result, tools, turn},
    transcripts::one_turn,
};

/// A replica whose polling finds nothing within the duration of a test.
fn without_polls(options: Options) -> Options {
    Options { poll: Duration::from_secs(600), ..options }
}

/// The replica that runs turns, the replica of the readers, and a third one. None of them finds changes by polling.
async fn three(options: impl Fn() -> Options) -> [Host; 3] {
    let first = Host::with(without_polls(options())).await;
    let hosts = [first.beside(without_polls(options())).await, first.beside(without_polls(options())).await, first];
    for host in &hosts {
        eventually("the replica to hear wake-ups", || async { host.replica.engine.live.receives_wakeups() }).await;
    }
    hosts
}

/// A reader of a session without new events.
async fn reader(host: &Host, session: &str) -> Streaming<pb::WatchEventsResponse> {
    let mut stream = host.watch(session, "", 0).await;
    until(&mut stream, |payload| matches!(payload, Payload::Sync(_))).await;
    stream
}

/// Reads up to an event of this kind, ignoring heartbeats.
async fn sees(stream: &mut Streaming<pb::WatchEventsResponse>, wanted: &str) -> Vec<pb::Event> {
    let reading = async {
        let mut seen: Vec<pb::Event> = Vec::new();
        while seen.last().is_none_or(|event| kind(event) != wanted) {
            let event = next(stream).await.unwrap();
            seen.push(event.unwrap_or_else(|| panic!("the stream ended without {wanted}")));
        }
        seen
    };
    timeout(TEST_TIMEOUT, reading).await.unwrap_or_else(|_| panic!("no {wanted} came"))
}

/// Reads up to the error with which a stream ends.
async fn fails<T: Carrier>(stream: &mut Streaming<T>) -> Status {
    let reading = async {
        loop {
            match next(stream).await {
                Ok(event) => assert!(event.is_some(), "the stream ended as if nothing had happened"),
                Err(status) => break status,
            }
        }
    };
    timeout(TEST_TIMEOUT, reading).await.expect("the stream goes on")
}

async fn create(host: &Host) {
    let session = pb::Session { session_id: "s".to_owned(), model: MODEL.to_owned(), ..pb::Session::default() };
    host.create(pb::Session { tools: tools(&["look"]), ..session }).await;
}

fn held(signal: &str) -> Value {
    json!({"wait_for": signal})
}

/// Row F10
#[tokio::test(flavor = "multi_thread")]
async fn a_remote_reader_sees_every_phase_of_a_turn() {
    let answers = || {
        answering(&[
            json!([held("first"), {"text": "One."}, held("spoken"), call("look")]),
            json!([held("second"), {"text": "Two."}]),
        ])
    };
    let [owner, readers, third] = three(answers).await;
    create(&owner).await;
    let mut stream = reader(&readers, "s").await;
    let mut own = owner.execute(turn("s", "", "Go")).await;
    sees(&mut stream, "step_started").await;
    owner.release("first");
    until_written(&mut stream, "One.").await;
    owner.release("spoken");
    sees(&mut stream, "action_required").await;
    let calls = requested(&until(&mut own, |payload| matches!(payload, Payload::ActionRequired(_))).await);
    // Another replica starts the next step. Its model has not responded yet.
    third.submit("s", vec![result(&calls[0], "fine")]).await;
    sees(&mut stream, "step_started").await;
    third.release("second");
    sees(&mut stream, "turn_completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_reader_sees_a_takeover_before_the_new_owner_commits_anything() {
    let [owner, readers, third] = three(|| answering(&[json!([{"text": "Well."}, held("go")])])).await;
    create(&owner).await;
    let mut stream = reader(&readers, "s").await;
    let mut own = owner.execute(turn("s", "", "Go")).await;
    until_written(&mut own, "Well.").await;
    sees(&mut stream, "step_started").await;
    owner.simulate_crash().await;
    as_worker(third.replica.engine.take_over()).await.unwrap();
    sees(&mut stream, "turn_recovered").await;
    until_written(&mut stream, "Well.").await;
    third.release("go");
    sees(&mut stream, "turn_completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_reader_sees_a_turn_that_is_handed_over_by_a_replica_that_stops() {
    let [owner, readers, third] = three(|| answering(&[json!([{"text": "Well."}, held("go")])])).await;
    create(&owner).await;
    let mut stream = reader(&readers, "s").await;
    let mut own = owner.execute(turn("s", "", "Go")).await;
    until_written(&mut own, "Well.").await;
    as_worker(owner.replica.engine.drain(Duration::ZERO)).await;
    sees(&mut stream, "turn_recovered").await;
    for host in [&readers, &third] {
        host.release("go");
    }
    sees(&mut stream, "turn_completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_reader_sees_turns_that_queued_messages_start() {
    let [owner, readers, _third] = three(|| answering(&[json!([held("go"), {"text": "Fine."}])])).await;
    create(&owner).await;
    let mut stream = reader(&readers, "s").await;
    let starts = |words: &str| pb::EnqueueMessageRequest {
        delivery: pb::Delivery::WhenIdle.into(),
        on_idle: pb::IdleAction::StartTurn.into(),
        ..enqueue("s", words)
    };
    owner.enqueue(starts("First")).await;
    sees(&mut stream, "turn_started").await;
    owner.enqueue(starts("Second")).await;
    owner.release("go");
    sees(&mut stream, "turn_completed").await;
    sees(&mut stream, "turn_started").await;
    sees(&mut stream, "turn_completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_reader_sees_a_cancel_by_a_third_replica() {
    let answers = || answering(&[json!([{"text": "Well."}, held("never")])]);
    let [owner, readers, third] = three(answers).await;
    create(&owner).await;
    let mut stream = reader(&readers, "s").await;
    let mut own = owner.execute(turn("s", "", "Go")).await;
    until_written(&mut own, "Well.").await;
    let cancelling = third.cancel("s", "");
    let (cancelled, _) = tokio::join!(cancelling, sees(&mut stream, "turn_cancelled"));
    assert_eq!(cancelled.turn.unwrap().state(), pb::TurnState::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_reader_sees_the_end_of_a_waiting_turn_that_another_replica_cancels() {
    let [owner, readers, third] = three(|| answering(&[json!([call("look")])])).await;
    create(&owner).await;
    let mut stream = reader(&readers, "s").await;
    let mut own = owner.execute(turn("s", "", "Go")).await;
    until(&mut own, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    third.cancel("s", "").await;
    sees(&mut stream, "turn_cancelled").await;
}

/// The session is deleted on one replica, while another one runs its turn and a third one has a reader.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_ends_remote_readers_and_stops_the_remote_owner() {
    let [owner, readers, third] = three(|| answering(&[json!([{"text": "Well."}, held("never")])])).await;
    create(&owner).await;
    let mut stream = reader(&readers, "s").await;
    let mut own = owner.execute(turn("s", "", "Go")).await;
    until_written(&mut own, "Well.").await;
    let request = pb::DeleteSessionRequest { session_id: "s".to_owned(), ..pb::DeleteSessionRequest::default() };
    third.sessions().delete_session(request).await.unwrap();
    sees(&mut stream, "turn_cancelled").await;
    assert_eq!(fails(&mut stream).await.code(), Code::NotFound);
    assert_eq!(fails(&mut own).await.code(), Code::NotFound);
    owner.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_reader_sees_what_changes_a_session_without_a_turn() {
    let summary = json!({"context_window": 100_000, "steps": [{"say": [{"text": "In short."}]}]}).to_string();
    let options = || answering(&[json!([{"text": "Fine."}])]).script("sum", summary.clone());
    let [owner, readers, third] = three(options).await;
    create(&owner).await;
    let mut stream = reader(&readers, "s").await;
    for n in 0..6 {
        owner.append("s", one_turn(&format!("c{n}"), 4_000)).await;
    }
    sees(&mut stream, "message_committed").await;

    let update = pb::UpdateSessionRequest {
        session: Some(pb::Session {
            session_id: "s".to_owned(),
            system_prompt: "Be brief.".to_owned(),
            ..pb::Session::default()
        }),
        update_mask: Some(FieldMask { paths: vec!["system_prompt".to_owned()] }),
        ..pb::UpdateSessionRequest::default()
    };
    third.sessions().update_session(update).await.unwrap();
    sees(&mut stream, "session_updated").await;

    let request = pb::PruneToolOutputsRequest {
        session_id: "s".to_owned(),
        minimum_tokens: Some(0),
        protect_tokens: Some(0),
        protect_turns: Some(0),
        ..Default::default()
    };
    third.contexts().prune_tool_outputs(request).await.unwrap();
    sees(&mut stream, "context_pruned").await;

    let compact = pb::CompactRequest {
        session_id: "s".to_owned(),
        summary_model: "scripted/sum".to_owned(),
        target_tokens: 100,
        wait: true,
        ..Default::default()
    };
    third.contexts().compact(compact).await.unwrap();
    sees(&mut stream, "compaction_started").await;
    sees(&mut stream, "compaction_completed").await;
}

/// A notification names its session. Other sessions with readers are not read.
#[tokio::test(flavor = "multi_thread")]
async fn a_wakeup_makes_a_replica_check_the_named_session() {
    let options = || answering(&[json!([{"text": "Fine."}])]);
    let host = Host::with(without_polls(options())).await;
    let readers = host.beside(without_polls(options())).await;
    eventually("the replica to hear wake-ups", || async { readers.replica.engine.live.receives_wakeups() }).await;
    // This replica sends no notifications.
    let silent = host.beside(Options { workers: false, ..options() }).await;
    for session in ["a", "b"] {
        host.create(pb::Session { session_id: session.to_owned(), model: MODEL.to_owned(), ..Default::default() })
            .await;
    }
    let _quiet = reader(&readers, "a").await;
    let mut stream = reader(&readers, "b").await;
    silent.append("a", one_turn("c1", 10)).await;
    host.append("b", one_turn("c1", 10)).await;
    sees(&mut stream, "message_committed").await;
    let head = |session: &str| {
        let key = SessionKey::new(TenantId::new("default"), SessionId::new(session));
        readers.replica.engine.live.hub.get(&key).expect("it is followed").seq().0
    };
    assert!(head("b") > 0);
    assert_eq!(head("a"), 0, "a session was looked at that no wake-up named");
}
